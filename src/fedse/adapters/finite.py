"""Whether an adapter holds numbers: a lesson that diverged leaves infinities, or nothing that is a number."""

from __future__ import annotations

import numpy as np

from fedse.types import Adapter


def is_finite(adapter: Adapter) -> bool:
    """All of its values, also of what never leaves its client."""
    return all(bool(np.isfinite(tensor).all()) for tensor in adapter.tensors.values())
