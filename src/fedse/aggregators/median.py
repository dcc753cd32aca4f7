"""The median of each entry (Yin and others, arXiv 1803.01498).

    next_i = median over clients k of adapter_k,i          the mean of the two middle ones for an even number of clients

Cost: traffic as `mean`; the server sorts K values for each entry (K log K comparisons) and holds a piece of about a million
values of all clients, whatever their number, and one vector.
Helps: where fewer than half of the clients may send anything at all. It is biased where honest clients differ, which they do
when each has a world of its own: with five worlds, what only one or two of them change stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import length
from fedse.aggregators.rule import EQUAL_UPDATES, Result, Rule, pieces
from fedse.protocols import StoredUpdate
from fedse.types import ServerState, Vector


class CoordinateMedian(Rule):
    """The median of each entry over the clients. Another rule for single entries overrides `middle`."""

    promises = frozenset({EQUAL_UPDATES})

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        vector = np.empty(length(updates[0].layout), dtype=np.float32)
        for start, stop in pieces(len(vector), len(updates)):
            vector[start:stop] = self.middle(np.stack([update.read(start, stop) for update in updates]))
        return self.following(state, vector), {}

    def middle(self, values: Vector) -> npt.NDArray[np.floating]:
        """One value for each column; the rows are clients."""
        middle: npt.NDArray[np.floating] = np.median(values.astype(np.float64), axis=0)
        return middle
