"""What a rescue makes of explored trajectories, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fedse.types import Trajectory


def rescued_by(rescue: Any, given: Sequence[Trajectory]) -> list[Trajectory]:
    """Of a rescue that asks for no episodes and looks at no adapter."""
    work = rescue.rescue(given, lambda: pytest.fail("no adapter is needed"))
    with pytest.raises(StopIteration) as ended:
        next(work)
    return list(ended.value.value)
