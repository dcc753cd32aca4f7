"""Adapters' changes as whole numbers of a ring, in which sums are exact in any order and masks vanish without a trace.

    scale    = the largest power of two with  sites * largest * scale < 2^(bits - 1)
    summand  = round(change * scale) mod 2^bits, and one entry more: 1 from a site that learned, 0 from one that did not
    mean     = sum / scale / sum of those entries

Rounding moves each value of the mean by at most 1 / (2 * scale). Nothing wraps around: a change beyond `largest` is refused.

With `squares` the square of the change's length goes along, as round(|change|^2 * scale^2) in digits of half the bits:

    values * (largest * scale)^2 < 2^(6 * bits / 2)        always, for fewer than 2^34 values
    sites * (2^(bits / 2) - 1)  < 2^bits                  the sum of a digit over all sites, for up to 2^(bits / 2) sites

so that it does not wrap around. It loses at most 1 / (2 * scale^2), or 2^-53 of it; a change below half a step counts as 0.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedse.adapters.rounding import SQUARE_DIGITS
from fedse.errors import OutOfRange
from fedse.types import Masked, Vector

Bits = Literal[32, 64]
Exact = npt.NDArray[np.floating[Any]]
"""A packed adapter in float32, or in float64 where noise must not be rounded away."""
Residues = npt.NDArray[Any]
"""Unsigned whole numbers that are counted modulo 2^bits."""


class FixedPoint:
    """The same at all sites of a sum and at the hub: it follows from what they agreed on and from how many they are."""

    def __init__(self, bits: Bits, largest: float, sites: int, squares: bool = False) -> None:
        self.bits = bits
        self.largest = largest
        self.dtype = np.dtype(f"<u{bits // 8}")
        self.squares = squares
        self._signed = np.dtype(f"<i{bits // 8}")
        self._digit = bits // 2
        self.scale = 2.0 ** math.floor(math.log2((2.0 ** (bits - 1) - 1) / (sites * largest)))
        if squares and sites > 2**self._digit:
            raise OutOfRange(
                f"the squared lengths of {sites:,} sites do not fit into a sum of {bits} bits, which holds those of "
                f"{2**self._digit:,}: nothing was sent; agree on `sending.secure_sum.bits: 64`."
            )

    @property
    def precision(self) -> Masked:
        """What an array of this form is called on the wire."""
        if self.squares:
            return "sum32_squares" if self.bits == 32 else "sum64_squares"
        return "sum32" if self.bits == 32 else "sum64"

    def summand(self, vector: Exact | None, broadcast: Vector) -> Residues:
        """What a site adds to the sum. Raises `OutOfRange`."""
        digits = SQUARE_DIGITS if self.squares else 0
        if vector is None:
            return np.zeros(broadcast.size + digits + 1, dtype=self.dtype)
        change = vector.astype(np.float64) - broadcast
        furthest = float(np.abs(change).max(initial=0.0))
        if not furthest <= self.largest:
            raise OutOfRange(
                f"a value of the update changes by {furthest:.4g}, and sending.secure_sum.largest = {self.largest:g} is the "
                "most that the sum can hold: nothing was sent; learn with a smaller rate, or agree on a larger value."
            )
        whole = np.rint(change * self.scale).astype(np.int64).astype(self.dtype)
        further = [*(self._digits(float(np.sum(change**2))) if self.squares else []), 1]
        return np.concatenate([whole, np.array(further, dtype=self.dtype)])

    def added(self, total: Residues) -> int:
        """How many sites had learned something."""
        return int(total[-1])

    def mean(self, total: Residues, broadcast: Vector) -> Vector:
        """The mean of the adapters in a sum without masks, to which somebody added something."""
        change = total[: broadcast.size].view(self._signed).astype(np.float64) / (self.scale * self.added(total))
        return np.asarray(broadcast + change, dtype=np.float32)

    def mean_square(self, total: Residues, broadcast: Vector) -> float:
        """The mean of the squared lengths of the changes, in a sum that holds them."""
        digits = total[broadcast.size : -1].tolist()
        whole: int = sum(digit << (self._digit * place) for place, digit in enumerate(digits))
        return whole / self.scale**2 / self.added(total)

    def _digits(self, square: float) -> list[int]:
        whole = round(square * self.scale**2)
        if whole >> (self._digit * SQUARE_DIGITS):
            raise OutOfRange(
                f"the squared length of the update, {square:.4g}, is more than the sum can hold: nothing was sent; agree on "
                "a smaller `sending.secure_sum.largest`, or on a smaller adapter."
            )
        return [whole >> (self._digit * place) & (2**self._digit - 1) for place in range(SQUARE_DIGITS)]
