"""TSV-M: singular vectors of all clients, made orthogonal to each other (Gargiulo and others, arXiv 2412.00081).

    change_k = U_k S_k V_k, its r largest, without zeros       U = [U_1 ... U_K],  V = [V_1; ...; V_K]
    merged = near(U) diag(S_1 ... S_K) near(V)        near(P D Q) = P Q: the nearest orthonormal vectors

Where clients' directions do not overlap this is the sum of their changes; where they do, the shared part is counted once.
Cost: as told in `product_merge.py`, with frozen ranks for what does not fit into the pair.
Helps: where changes are long and overlap in part, as in the first rounds, when all clients learn the form of a reply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Matrix, carrying
from fedse.aggregators.product_merge import ProductMerge


class TsvMerge(ProductMerge):
    """The sum of the clients' changes with their singular vectors made orthogonal to each other, in product space."""

    def merged(self, changes: Sequence[Matrix], rank: int) -> Matrix:
        # A vector without a value is arbitrary, and would turn those of the other clients away from itself.
        found = [_carrying(*np.linalg.svd(change, full_matrices=False), rank) for change in changes]
        lefts, rights = np.hstack([lefts for lefts, _, _ in found]), np.vstack([rights for _, _, rights in found])
        values = np.concatenate([values for _, values, _ in found])
        if not len(values):
            return np.zeros_like(changes[0])
        merged: Matrix = (nearest_orthonormal(lefts) * values) @ nearest_orthonormal(rights)
        return merged


def _carrying(lefts: Matrix, values: Matrix, rights: Matrix, rank: int) -> tuple[Matrix, Matrix, Matrix]:
    count = min(rank, int(carrying(values).sum()))
    return lefts[:, :count], values[:count], rights[:count]


def nearest_orthonormal(vectors: Matrix) -> Matrix:
    """The matrix with orthonormal columns, or rows where those are fewer, that is nearest (Procrustes)."""
    lefts, _, rights = np.linalg.svd(vectors, full_matrices=False)
    nearest: Matrix = lefts @ rights
    return nearest
