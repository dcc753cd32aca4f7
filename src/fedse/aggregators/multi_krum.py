"""Multi-Krum: the mean of the updates that are closest to their neighbours (Blanchard and others, arXiv 1703.02757).

    score_k = sum of || adapter_k - adapter_j ||^2 over the K - f - 2 nearest j          f = hostile clients
    next    = mean of the `keep` updates with the lowest scores

Cost: traffic as `mean`; the server reads everything twice, needs K^2 operations for each entry and holds a piece of about a
million values of all clients, a K x K table and two vectors.
Helps: where hostile clients are few (K >= 2 f + 3 is the theorem's condition, reported as `krum_guaranteed`) and honest ones
resemble each other. Where each client has a world of its own it drops the worlds that differ most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedse.adapters.packing import length
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import Result, pieces
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState

Table = npt.NDArray[np.float64]


class MultiKrumOptions(PluginOptions):
    """Whom to distrust."""

    hostile: int = Field(default=1, ge=0)
    """Clients that may send anything."""
    keep: int | None = Field(default=None, ge=1)
    """Updates whose mean is taken; when not set, all but `hostile`."""


class MultiKrum(Mean):
    """The mean of the updates that are closest to their neighbours."""

    Options = MultiKrumOptions

    def __init__(self, hostile: int = 1, keep: int | None = None) -> None:
        self.options = MultiKrumOptions(hostile=hostile, keep=keep)

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        following, numbers = super().combine(state, updates)
        guaranteed = len(updates) >= 2 * self.options.hostile + 3
        return following, {**numbers, "krum_guaranteed": float(guaranteed)}

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        scores = self.scores(squared_distances(updates))
        keep = self.options.keep if self.options.keep is not None else len(updates) - self.options.hostile
        # Equal scores, as those of two clients always are, are decided by name and not by order.
        ranked = sorted(range(len(updates)), key=lambda index: (scores[index], updates[index].client))
        weights = np.zeros(len(updates))
        weights[ranked[: max(1, keep)]] = 1.0
        return weights

    def scores(self, distances: Table) -> list[float]:
        nearest = max(1, len(distances) - self.options.hostile - 2)
        others = [np.delete(row, index) for index, row in enumerate(distances)]
        return [float(np.sort(row)[:nearest].sum()) for row in others]


def squared_distances(updates: Sequence[StoredUpdate]) -> Table:
    """Between all pairs, with one piece of all clients in memory at a time."""
    products = np.zeros((len(updates), len(updates)))
    for start, stop in pieces(length(updates[0].layout), len(updates)):
        values = np.stack([update.read(start, stop) for update in updates]).astype(np.float64)
        # What all have in common would cancel anyway, and cost digits.
        values -= values.mean(axis=0)
        products += values @ values.T
    squares = np.diag(products)
    distances = squares[:, None] + squares[None, :] - products - products.T
    return np.maximum(distances, 0.0)
