"""Adapters' changes as whole numbers of a ring, in which sums are exact in any order and masks vanish without a trace.

    scale    = the largest power of two with  sites * largest * scale < 2^(bits - 1)
    summand  = round(change * scale) mod 2^bits, and one entry more: 1 from a site that learned, 0 from one that did not
    mean     = sum / scale / sum of those entries

Rounding moves each value of the mean by at most 1 / (2 * scale). Nothing wraps around: a change beyond `largest` is refused.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedse.errors import OutOfRange
from fedse.types import Vector

Bits = Literal[32, 64]
Exact = npt.NDArray[np.floating[Any]]
"""A packed adapter in float32, or in float64 where noise must not be rounded away."""
Residues = npt.NDArray[Any]
"""Unsigned whole numbers that are counted modulo 2^bits."""


class FixedPoint:
    """The same at all sites of a sum and at the hub: it follows from what they agreed on and from how many they are."""

    def __init__(self, bits: Bits, largest: float, sites: int) -> None:
        self.bits = bits
        self.largest = largest
        self.dtype = np.dtype(f"<u{bits // 8}")
        self._signed = np.dtype(f"<i{bits // 8}")
        self.scale = 2.0 ** math.floor(math.log2((2.0 ** (bits - 1) - 1) / (sites * largest)))

    def summand(self, vector: Exact | None, broadcast: Vector) -> Residues:
        """What a site adds to the sum. Raises `OutOfRange`."""
        if vector is None:
            return np.zeros(broadcast.size + 1, dtype=self.dtype)
        change = vector.astype(np.float64) - broadcast
        furthest = float(np.abs(change).max(initial=0.0))
        if not furthest <= self.largest:
            raise OutOfRange(
                f"a value of the update changes by {furthest:.4g}, and sending.secure_sum.largest = {self.largest:g} is the "
                "most that the sum can hold: nothing was sent; learn with a smaller rate, or agree on a larger value."
            )
        whole = np.append(np.rint(change * self.scale), 1.0).astype(np.int64)
        return whole.astype(self.dtype)

    def arrives(self, vector: Vector, broadcast: Vector) -> Vector:
        """What a sum of this update alone would hold, to measure the rounding."""
        return self.mean(self.summand(vector, broadcast), broadcast)

    def added(self, total: Residues) -> int:
        """How many sites had learned something."""
        return int(total[-1])

    def mean(self, total: Residues, broadcast: Vector) -> Vector:
        """The mean of the adapters in a sum without masks, to which somebody added something."""
        change = total[:-1].view(self._signed).astype(np.float64) / (self.scale * self.added(total))
        return np.asarray(broadcast + change, dtype=np.float32)
