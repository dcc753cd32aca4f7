"""SPEAR: policy gradients over groups, and beside them, more and more, the successes of earlier rounds (arXiv 2509.22601).

Without the paper's bonus for calls of tools, which a judge could give (`objectives/replay.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from fedse.learners.compared import Compared, ComparedOptions
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.objectives.replay import WithReplay, rescored
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson

_GROWING: Ramp = {"from": 0.0, "to": 1.0, "over": 10, "curve": "cosine"}


class SpearOptions(ComparedOptions):
    replay: Annotated[float | Ramp, Scheduled(least=0)] = _GROWING
    """Weight of the loss of what is replayed; the paper's grows as half a wave of a cosine."""
    replay_age: int = Field(default=10, ge=1)
    """Rounds after which nothing is replayed any more, and over which it is found out what is usual."""


class Spear(Compared):
    """Learns from the round's groups, and once more from what earlier rounds did better than is usual now."""

    name = "spear"
    Options = SpearOptions
    replays: ClassVar[bool] = True
    learns_from_attempts: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = (*Compared.metrics, "replayed_share")
    options: SpearOptions

    def replayed(self, lesson: Lesson) -> list[Case]:
        if not at(self.options.replay, self._round):
            return []
        found = rescored(lesson.trajectories, lesson.attempts, self._round, self.options.replay_age)
        return [Case((item,), (advantage,), replayed=True) for item, advantage in found]

    def objective(self, cases: Sequence[Case]) -> Objective:
        compared, replayed = (
            self.ratio([case for case in cases if case.replayed is again], len(cases)) for again in (False, True)
        )
        return WithReplay(compared, replayed, at(self.options.replay, self._round))
