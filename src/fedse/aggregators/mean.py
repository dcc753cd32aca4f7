"""The unweighted mean of the adapters, A and B separately: the paper's rule (Fed-SE, arXiv 2512.08870).

    next = (1 / K) * sum over clients k of adapter_k

Cost: one adapter up and one down for each client; the server reads each update once, 2 operations for each value of each
client, and holds one update and two vectors in float64, whatever the number of clients.
Helps: always a good start. Inexact for the product: mean(B_k A_k) differs from mean(B_k) mean(A_k) by the covariance of the
factors' deviations, which every round's report states as `product_gap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import length
from fedse.aggregators.rule import EQUAL_UPDATES, ONLY_THE_SUM, Result, Rule
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


class Mean(Rule):
    """The unweighted mean of the adapters, A and B separately: the paper's rule.

    A variant with weights overrides `weights`.
    """

    promises = frozenset({EQUAL_UPDATES, ONLY_THE_SUM})
    plain_mean = True

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.plain_mean = False
        if "promises" not in vars(cls):  # What a variant changes may need single updates.
            cls.promises = cls.promises - {ONLY_THE_SUM}

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        return np.ones(len(updates))

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        mean = weighted_mean(updates, self.weights(updates))
        return self.following(state, mean.astype(np.float32)), {}


def weighted_mean(
    updates: Sequence[StoredUpdate], weights: npt.NDArray[np.float64], start: int = 0, stop: int | None = None
) -> npt.NDArray[np.float64]:
    """Of the vectors, or of a piece of them, with one client in memory at a time."""
    size = (length(updates[0].layout) if stop is None else stop) - start
    # In float64 the sum of equal float32 values is exact, so the mean of equal adapters is that adapter.
    # It starts at -0.0, which changes no number it is added to; 0.0 would turn a -0.0 into 0.0.
    total = np.full(size, -0.0)
    for weight, update in zip(weights, updates, strict=True):
        total += weight * update.read(start, stop)
    total /= weights.sum()
    return total
