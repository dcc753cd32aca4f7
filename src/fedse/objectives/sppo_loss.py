"""SPPO (arXiv 2405.00675): each attempt's log-ratio is drawn to eta times its win share above one half.

(r - eta (P - 1/2))^2 / 2, with r = log pi / pi_ref over the agent's tokens and P the share of the other attempts at the task
that it beats. The reference is the adapter with which the round began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.objectives.objective import Objective, Scored, Weighed, means


@dataclass(frozen=True)
class SppoLoss(Objective):
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
            means({"winner_log_ratio": ratios[wins > 0], "loser_log_ratio": ratios[wins < 0]}),
        )
