"""The mean of each entry without its largest and smallest values (Yin and others, arXiv 1803.01498).

    next_i = mean of adapter_k,i over the clients that remain when the b largest and b smallest are left out,
             b = floor(share * K), told in the report as `trimmed`

Cost: traffic as `mean`; the server sorts K values for each entry and holds a piece of about a million values of all clients
and one vector.
Helps: where up to b clients may be broken or hostile and honest ones resemble each other; with b = 0 it is the plain mean,
and a run says so before it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedse.aggregators.median import CoordinateMedian
from fedse.aggregators.rule import Result
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState, Vector


class TrimmedMeanOptions(PluginOptions):
    """How much is left out."""

    share: float = Field(default=0.2, ge=0, lt=0.5)
    """Share of the clients whose values are left out at each end; at 0.2, one of five."""


class TrimmedMean(CoordinateMedian):
    """The mean of each entry over the clients without its extremes."""

    Options = TrimmedMeanOptions

    def __init__(self, share: float = 0.2) -> None:
        self.share = TrimmedMeanOptions(share=share).share

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        following, numbers = super().combine(state, updates)
        return following, {**numbers, "trimmed": float(self._left_out(len(updates)))}

    def advice(self, clients: int) -> str:
        if self.share == 0 or self._left_out(clients):
            return ""
        least = next((0.01 * share for share in range(1, 50) if int(0.01 * share * clients)), None)
        instead = f"set aggregator.share to {least:.2g} or more" if least else "take `median`"
        return (
            f"trimmed_mean with aggregator.share = {self.share:g} leaves out nobody of {clients} clients, so it is "
            f"the plain mean: {instead}, or use `norm_bounded`."
        )

    def _left_out(self, clients: int) -> int:
        """At each end."""
        return int(self.share * clients)

    def middle(self, values: Vector) -> npt.NDArray[np.floating]:
        out = self._left_out(len(values))
        remaining = np.sort(values, axis=0)[out : len(values) - out].astype(np.float64)
        middle: npt.NDArray[np.floating] = remaining.sum(axis=0) / len(remaining)
        return middle
