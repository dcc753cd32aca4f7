"""SPPO (arXiv 2405.00675): each attempt's log-ratio is drawn to eta times its win share above one half.

(r - eta (P - 1/2))^2 / 2, with r = log pi / pi_ref over the agent's tokens and P the share of the other attempts at the task
that it beats. The reference is the adapter with which the round began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedse.learners.cases import Case
from fedse.learners.groups import differ, groups_of, uniform_share, win_shares
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.learners.objective import Objective, Scored, Weighed
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
        return [
            Case((trajectory,), (share - 0.5,))
            for group in groups_of(lesson.fresh)
            if differ(group)
            for trajectory, share in zip(group, win_shares(group), strict=True)
        ]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return SppoLoss(at(self.options.eta, self._round), self.options.length_normalized)

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        return {"uniform_groups": uniform_share(groups_of(lesson.fresh))}


@dataclass(frozen=True)
class SppoLoss:
    eta: float
    length_normalized: bool

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        lengths = np.array([len(item.now) if self.length_normalized else 1 for item in batch])
        ratios = np.array([item.log_ratio.sum() for item in batch]) / lengths
        wins = np.array([item.example.credit for item in batch])
        missing = self.eta * wins - ratios
        return Weighed(
            [
                np.full(len(item.now), gap / length / len(batch))
                for item, gap, length in zip(batch, missing, lengths, strict=True)
            ],
            float((missing**2).mean() / 2),
            {
                "winner_log_ratio": float(ratios[wins > 0].mean()) if (wins > 0).any() else 0.0,
                "loser_log_ratio": float(ratios[wins < 0].mean()) if (wins < 0).any() else 0.0,
            },
        )
