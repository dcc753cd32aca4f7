"""SPPO: attempts are drawn to how often they beat others at the same task (`objectives/sppo_loss.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.groups import groups_of, uniform_share, win_advantages
from fedse.objectives.objective import Objective
from fedse.objectives.sppo_loss import SppoLoss
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson


class SppoOptions(ImitationOptions):
    eta: Annotated[float | Ramp, Scheduled(above=0)] = 100.0
    """How far an attempt that beats all others is drawn, in nats, times one half; the paper has 1,000 for replies to one
    question."""
    length_normalized: bool = False
    """Means over the agent's tokens in place of sums; eta is then in nats per token."""


class Sppo(Imitation):
    """Draws each attempt to how often it beats the others at the same task."""

    name = "sppo"
    Options = SppoOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("winner_log_ratio", "loser_log_ratio", "uniform_groups")
    options: SppoOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        return [Case((trajectory,), (above,)) for trajectory, above in win_advantages(groups_of(lesson.fresh))]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return SppoLoss(at(self.options.eta, self._round), self.options.length_normalized)

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        return {"uniform_groups": uniform_share(groups_of(lesson.fresh))}
