"""Successes alone: the paper's rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedse.types import Outcome, Trajectory


class Success:
    """Keeps what the world calls a success: the paper's rule."""

    one_by_one: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.one_by_one = cls.__dict__.get("one_by_one", False)

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [trajectory for trajectory in trajectories if trajectory.outcome is Outcome.SUCCESS]
