"""Core space: all products of a module in one small square each, without loss (Panariello and others, arXiv 2509.17786).

    U = left singular vectors of [B_0 B_1 ... B_K]        V = right singular vectors of [A_0; A_1; ...; A_K]
    core_k = U^T B_k A_k V^T,  at most (K + 1) r on a side            B_k A_k = U core_k V

A rule that turns with the vectors of such a basis gives the same merged matrix here as on the dense products. The broadcast
pair is number 0, so that changes lie in the space too. Singular vectors and not just any orthogonal basis, because rules
that go by entries (TIES) depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedse.aggregators.factors import Matrix

_NOTHING = 1e-10
"""Directions with less than this share of the largest singular value hold rounding errors only."""


@dataclass(frozen=True)
class CoreSpace:
    """The products of one module: of the broadcast pair, and of each client's."""

    left: Matrix
    """Outputs x side; orthonormal columns."""
    right: Matrix
    """Side x inputs; orthonormal rows."""
    broadcast: Matrix
    clients: tuple[Matrix, ...]

    @classmethod
    def of(cls, up: Matrix, down: Matrix, ups: Sequence[Matrix], downs: Sequence[Matrix]) -> CoreSpace:
        left = _basis(np.hstack([up, *ups]))
        right = _basis(np.hstack([down.T, *(each.T for each in downs)])).T

        def core(up: Matrix, down: Matrix) -> Matrix:
            return (left.T @ up) @ (down @ right.T)

        return cls(left, right, core(up, down), tuple(map(core, ups, downs)))

    @property
    def changes(self) -> list[Matrix]:
        return [own - self.broadcast for own in self.clients]

    def factors(self, core: Matrix) -> tuple[Matrix, Matrix]:
        """B and A of a core, the largest singular value first. Beyond the core's own ranks B is zero and A goes on with
        further directions of the space: a pair that is trained later must not be zero on both sides."""
        lefts, values, rights = np.linalg.svd(core)
        up = self.left @ (lefts[:, : len(values)] * values)
        return np.pad(up, ((0, 0), (0, len(rights) - len(values)))), rights @ self.right


def _basis(side_by_side: Matrix) -> Matrix:
    """Left singular vectors that carry something, with signs that are always the same; one at least."""
    vectors, values, _ = np.linalg.svd(side_by_side, full_matrices=False)
    kept = max(1, int(np.sum(values > _NOTHING * values.max(initial=0.0))))
    vectors = vectors[:, :kept]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(kept)])
    signs[signs == 0] = 1.0
    signed: Matrix = vectors * signs
    return signed
