"""A likelihood in which what the present policy would still do counts more than what it has left behind.

    w = min(limit, geometric mean over the agent's tokens of  probability at the lesson's beginning / when it was drawn)

The mean over a batch's tokens of -w log p. Where it is not known how likely tokens were, as of demonstrations, w is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.objectives.cases import CreditedExample
from fedse.objectives.objective import Objective, Scored, Weighed


@dataclass(frozen=True)
class LikelihoodReplay(Objective):
    limit: float

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        return example.drawn is not None and not known

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        tokens = sum(len(item.now) for item in batch)
        factors = [self.factor(item) for item in batch]
        weights = [np.full(len(item.now), own / tokens) for item, own in zip(batch, factors, strict=True)]
        loss = -sum(float(own @ item.now) for own, item in zip(weights, batch, strict=True))
        return Weighed(weights, loss, {"replay_weight": float(np.mean(factors))})

    def factor(self, item: Scored) -> float:
        if item.example.drawn is None:
            return 1.0
        return min(self.limit, float(np.exp((item.before - item.example.drawn).mean())))
