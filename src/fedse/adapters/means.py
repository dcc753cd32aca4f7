"""The mean of adapters that somebody holds, tensor by tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.types import Tensors


def mean_of(adapters: Sequence[Tensors]) -> Tensors:
    """Nothing of none."""
    names = adapters[0].keys() if adapters else ()
    return {
        name: np.asarray(np.mean([each[name] for each in adapters], axis=0, dtype=np.float64), dtype=np.float32)
        for name in names
    }
