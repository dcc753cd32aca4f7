"""The mean of each entry without its largest and smallest values (Yin and others, arXiv 1803.01498).

    next_i = mean of adapter_k,i over the clients that remain when the b largest and b smallest are left out,
             b = floor(share * K)

Cost: traffic as `mean`; the server sorts K values for each entry and holds a piece of about a million values of all clients
and one vector.
Helps: where up to b clients may be broken or hostile and honest ones resemble each other; with b = 0 it is the plain mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedse.aggregators.median import CoordinateMedian
from fedse.plugins import PluginOptions
from fedse.types import Vector


class TrimmedMeanOptions(PluginOptions):
    """How much is left out."""

    share: float = Field(default=0.2, ge=0, lt=0.5)
    """Share of the clients whose values are left out at each end; at 0.2, one of five."""


class TrimmedMean(CoordinateMedian):
    """The mean of each entry over the clients without its extremes."""

    Options = TrimmedMeanOptions

    def __init__(self, share: float = 0.2) -> None:
        self.share = TrimmedMeanOptions(share=share).share

    def middle(self, values: Vector) -> npt.NDArray[np.floating]:
        out = int(self.share * len(values))
        remaining = np.sort(values, axis=0)[out : len(values) - out].astype(np.float64)
        middle: npt.NDArray[np.floating] = remaining.sum(axis=0) / len(remaining)
        return middle
