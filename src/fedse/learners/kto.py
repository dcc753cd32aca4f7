"""KTO: what is remembered becomes likelier, the round's failures less likely (`objectives/kto_loss.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.kto_loss import KtoLoss
from fedse.objectives.objective import Objective
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson, Outcome


class KtoOptions(ImitationOptions):
    """Options as TRL's `KTOConfig` has them."""

    beta: Annotated[float | Ramp, Scheduled(above=0)] = 0.1
    """How soon a trajectory is far enough from the reference."""
    desirable_weight: float = Field(default=1.0, ge=0)
    """Weight of successes, which are all that is remembered."""
    undesirable_weight: float = Field(default=1.0, ge=0)
    """Weight of failures, which are those of this round."""


class Kto(Imitation):
    """Makes what is remembered likelier than the round's beginning did, and the round's failures less likely."""

    name = "kto"
    Options = KtoOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("success_log_ratio", "failure_log_ratio")
    options: KtoOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        failures = [item for item in lesson.fresh if item.outcome is Outcome.FAILURE]
        return [
            *(Case((item,), (1.0,)) for item in lesson.trajectories),
            *(Case((item,), (-1.0,)) for item in failures),
        ]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        beta = at(self.options.beta, self._round)
        return KtoLoss(beta, self.options.desirable_weight, self.options.undesirable_weight)
