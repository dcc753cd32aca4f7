"""DPO (arXiv 2305.18290) with trajectories: a success and a failure at the same task are a pair.

-log sigmoid(beta (r_w - r_l)), where r = log pi / pi_ref is summed over the agent's tokens, or their mean with
`length_normalized`; the reference is the adapter with which the round began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.objectives.objective import Objective, Scored, Values, Weighed


@dataclass(frozen=True)
class DpoLoss(Objective):
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
