"""By score, for worlds that give partial credit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fedse.plugins import PluginOptions
from fedse.types import Trajectory


class Threshold:
    """Keeps trajectories whose score reaches a bound, for worlds that give partial credit."""

    one_by_one: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.one_by_one = cls.__dict__.get("one_by_one", False)

    class Options(PluginOptions):
        score: float = Field(default=0.5, ge=0)
        """Least score of a trajectory that is kept."""

    def __init__(self, score: float = 0.5) -> None:
        self.score = score

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [trajectory for trajectory in trajectories if trajectory.score >= self.score]
