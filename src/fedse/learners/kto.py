"""KTO (arXiv 2402.01306): successes up, failures down, without pairs and without groups.

r = log pi / pi_ref, summed over the agent's tokens; a success loses desirable_weight (1 - sigmoid(beta (r - z))), a failure
undesirable_weight (1 - sigmoid(beta (z - r))). The reference pi_ref is the adapter with which the round began. The paper
and TRL estimate the reference point z from prompts with the replies of others, which a trajectory cannot have: here z is
the mean of r over the batch, at least 0, and no gradient goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedse.learners.cases import Case
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.learners.objective import Objective, Scored, Weighed
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


@dataclass(frozen=True)
class KtoLoss:
    beta: float
    desirable: float
    undesirable: float

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        ratios = np.array([item.log_ratio.sum() for item in batch])
        signs = np.array([item.example.credit for item in batch])
        weights = np.where(signs > 0, self.desirable, self.undesirable)
        above = self.beta * signs * (ratios - max(0.0, float(ratios.mean())))
        values = (1 + np.tanh(above / 2)) / 2  # The logistic function, without overflow.
        slopes = weights * self.beta * signs * values * (1 - values) / len(batch)
        return Weighed(
            [np.full(len(item.now), slope) for item, slope in zip(batch, slopes, strict=True)],
            float((weights * (1 - values)).mean()),
            {
                "success_log_ratio": float(ratios[signs > 0].mean()) if (signs > 0).any() else 0.0,
                "failure_log_ratio": float(ratios[signs < 0].mean()) if (signs < 0).any() else 0.0,
            },
        )
