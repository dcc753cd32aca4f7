"""KTO (arXiv 2402.01306): successes up, failures down, without pairs and without groups.

r = log pi / pi_ref, summed over the agent's tokens; a success loses desirable_weight (1 - sigmoid(beta (r - z))), a failure
undesirable_weight (1 - sigmoid(beta (z - r))). The reference pi_ref is the adapter with which the round began. The paper
and TRL estimate the reference point z from prompts with the replies of others, which a trajectory cannot have: here z is
the mean of r over the batch, at least 0, and no gradient goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.objectives.objective import Objective, Scored, Weighed, means


@dataclass(frozen=True)
class KtoLoss(Objective):
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
            means({"success_log_ratio": ratios[signs > 0], "failure_log_ratio": ratios[signs < 0]}),
        )
