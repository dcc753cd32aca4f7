"""DPO (arXiv 2305.18290) with trajectories: a success and a failure at the same task are a pair.

-log sigmoid(beta (r_w - r_l)), where r = log pi / pi_ref is summed over the agent's tokens, or their mean with
`length_normalized`; the reference is the adapter with which the round began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from fedse.learners.cases import Case
from fedse.learners.groups import groups_of
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.learners.objective import Objective, Scored, Values, Weighed
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson, Outcome, Trajectory


class DpoOptions(ImitationOptions):
    """A batch is made of pairs: `batch_size` counts them."""

    beta: Annotated[float | Ramp, Scheduled(above=0)] = 0.1
    """How soon the two are far enough apart."""
    length_normalized: bool = False
    """Means over the agent's tokens in place of sums, so that long trajectories do not count more."""
    max_pairs_per_task: int = Field(default=4, ge=1)
    """Pairs of one task in a round. Each failure is paired with another success as long as there are some."""


class Dpo(Imitation):
    """Makes a success likelier than a failure at the same task, measured from the round's beginning."""

    name = "dpo"
    Options = DpoOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("winner_log_ratio", "loser_log_ratio", "pairs_in_order")
    options: DpoOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        remembered: dict[tuple[str, str], list[Trajectory]] = {}
        for item in lesson.trajectories:
            remembered.setdefault((item.world, item.task), []).append(item)
        return [case for group in groups_of(lesson.fresh) for case in self._pairs(group, remembered)]

    def _pairs(self, group: list[Trajectory], remembered: dict[tuple[str, str], list[Trajectory]]) -> list[Case]:
        """Successes of this round first: they were explored by the same adapter as the failures."""
        losers = [item for item in group if item.outcome is Outcome.FAILURE]
        winners = [item for item in group if item.outcome is Outcome.SUCCESS]
        winners += remembered.get((group[0].world, group[0].task), [])
        pairs = zip((winners[at % len(winners)] for at in range(len(losers))), losers, strict=True) if winners else ()
        return [Case(pair, (1.0, -1.0)) for pair in list(pairs)[: self.options.max_pairs_per_task]]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return DpoLoss(at(self.options.beta, self._round), self.options.length_normalized)


@dataclass(frozen=True)
class DpoLoss:
    beta: float
    length_normalized: bool

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        """Winners and losers stand beside each other."""
        lengths = np.array([len(item.now) if self.length_normalized else 1 for item in batch])
        ratios = np.array([item.log_ratio.sum() for item in batch]) / lengths
        margins = self.beta * (ratios[::2] - ratios[1::2])
        wrong = (1 - np.tanh(margins / 2)) / 2  # The logistic function of -margins, without overflow.
        slopes = np.repeat(self.beta * wrong / len(margins), 2) * np.tile([1.0, -1.0], len(margins))
        weights: list[Values] = [
            np.full(len(item.now), slope / length) for item, slope, length in zip(batch, slopes, lengths, strict=True)
        ]
        return Weighed(
            weights,
            float(np.logaddexp(0.0, -margins).mean()),
            {
                "winner_log_ratio": float(ratios[::2].mean()),
                "loser_log_ratio": float(ratios[1::2].mean()),
                "pairs_in_order": float((margins > 0).mean()),
            },
        )
