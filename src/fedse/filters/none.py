"""No filter: the paper's ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedse.types import Trajectory


class KeepAll:
    """Keeps failures too: the paper's ablation without a filter."""

    one_by_one: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.one_by_one = cls.__dict__.get("one_by_one", False)

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories)
