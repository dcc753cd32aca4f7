"""The unweighted mean of the adapters, A and B separately: the paper's rule (Fed-SE, arXiv 2512.08870).

    next = (1 / K) * sum over clients k of adapter_k

Cost: one adapter up and one down for each client; the server reads each update once and holds two vectors.
Inexact for the product: mean(B_k A_k) differs from mean(B_k) mean(A_k) by the covariance of the factors' deviations,
which every round's report states as `product_gap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import length, unpack
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


class Mean:
    """A variant with weights overrides `weights`."""

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        return np.ones(len(updates))

    def aggregate(self, state: ServerState, updates: Sequence[StoredUpdate]) -> tuple[ServerState, Mapping[str, float]]:
        layout = state.adapter.layout
        weights = self.weights(updates)
        # In float64 the sum of equal float32 values is exact, so the mean of equal adapters is that adapter.
        # It starts at -0.0, which changes no number it is added to; 0.0 would turn a -0.0 into 0.0.
        total = np.full(length(layout), -0.0)
        for weight, update in zip(weights, updates, strict=True):
            total += weight * update.read()
        mean = (total / weights.sum()).astype(np.float32)
        adapter = unpack(mean, layout, state.adapter.config)
        return ServerState(state.round + 1, adapter, state.memory), {}
