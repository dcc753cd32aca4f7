"""LoRA pairs of many updates, module by module, and products that are never written out.

The mean of products is itself a product of the factors side by side:

    mean_k B_k A_k = [B_1 ... B_K] / K  @  [A_1; ...; A_K]

so its best approximation of a rank needs two QR decompositions of thin matrices and the SVD of a small square one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import slices
from fedse.adapters.plan import factor, part
from fedse.adapters.stored import read_ahead
from fedse.protocols import StoredUpdate
from fedse.types import Layout

Matrix = npt.NDArray[np.float64]
_NOTHING = 1e-7
"""Singular values below this share of the largest are rounding errors of float32."""


class Factors:
    """The tensors of a round's updates by name; each is read when it is asked for."""

    def __init__(self, updates: Sequence[StoredUpdate]) -> None:
        self._updates = read_ahead(updates)
        self._places = [
            {name: (shape, start, stop) for name, shape, start, stop in slices(update.layout)} for update in updates
        ]

    def __getitem__(self, name: str) -> list[Matrix]:
        """The tensor of every client."""
        return list(self.each(name))

    def each(self, name: str) -> Iterator[Matrix]:
        """The tensor of one client after another, with one in memory at a time."""
        for update, places in zip(self._updates, self._places, strict=True):
            shape, start, stop = places[name]
            yield update.read(start, stop).reshape(shape).astype(np.float64)

    def mean(self, name: str) -> Matrix:
        total = np.zeros(self._places[0][name][0])
        for tensor in self.each(name):
            total += tensor
        return total / len(self._updates)


def pairs(layout: Layout) -> tuple[list[tuple[str, str]], list[str]]:
    """Names of the factors A and B of each module's shared pair, and the tensors that are in no pair."""
    names = {name for name, _ in layout if not part(name)}
    found = [
        (name, partner)
        for name in sorted(names)
        if factor(name) == "A" and (partner := name.replace(".lora_A.", ".lora_B.")) in names
    ]
    return found, sorted(names - {name for pair in found for name in pair})


def side_by_side(ups: Sequence[Matrix], downs: Sequence[Matrix]) -> tuple[Matrix, Matrix]:
    """Two factors whose product is the mean of the products."""
    return np.hstack(ups) / len(ups), np.vstack(downs)


def decompose(up: Matrix, down: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Left vectors, singular values and right vectors of `up @ down`, largest first, with signs that are always the same."""
    left, left_core = np.linalg.qr(up)
    right, right_core = np.linalg.qr(down.T)
    inner_left, values, inner_right = np.linalg.svd(left_core @ right_core.T)
    size = len(values)
    lefts, rights = left @ inner_left[:, :size], inner_right[:size] @ right.T
    signs = np.sign(rights[np.arange(size), np.abs(rights).argmax(axis=1)])
    signs[signs == 0] = 1.0
    return lefts * signs, values, rights * signs[:, None]


def carrying(values: Matrix, beside: float = 0.0) -> npt.NDArray[np.bool_]:
    """Which singular values are more than rounding errors `beside` this length, or beside the largest of them."""
    return np.asarray(values > _NOTHING * max(beside, float(values.max(initial=0.0))))


def padded(up: Matrix, down: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """The first `rank` columns and rows, filled up with zeros where a small module has fewer."""
    short = max(0, rank - up.shape[1])
    return np.pad(up[:, :rank], ((0, 0), (0, short))), np.pad(down[:rank], ((0, short), (0, 0)))


def as_float32(tensors: Mapping[str, Matrix]) -> dict[str, npt.NDArray[np.float32]]:
    return {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
