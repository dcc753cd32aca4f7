"""A likelihood in which each trajectory counts by its credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.objectives.cases import CreditedExample
from fedse.objectives.objective import Objective, Scored, Weighed


@dataclass(frozen=True)
class WeightedLikelihood(Objective):
    """The mean over the batch's tokens of advantage times negative log-likelihood."""

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        del example, known  # To none.
        return False

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        tokens = sum(len(item.now) for item in batch)
        weights = [np.full(len(item.now), item.example.credit / tokens) for item in batch]
        loss = -sum(float((own * item.now).sum()) for own, item in zip(weights, batch, strict=True))
        return Weighed(weights, loss)
