"""Iso-C: the sum of the changes with all its singular values made equal (Marczak and others, arXiv 2502.04959).

    sum_k change_k = U S V            merged = mean(S) U V, over the singular values that are not zero

What few clients learned weighs as much as what all of them did.
Cost: as told in `product_merge.py`, with frozen ranks for what does not fit into the pair.
Helps: where one client's or a common direction drowns the others. It gives the smallest directions, noise among them, the
length of the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Matrix, carrying
from fedse.aggregators.product_merge import ProductMerge


class IsoMerge(ProductMerge):
    """The sum of the clients' changes with equal singular values, in product space."""

    def merged(self, changes: Sequence[Matrix], rank: int) -> Matrix:
        del rank  # As many as the sum has.
        total: Matrix = np.sum(changes, axis=0)
        lefts, values, rights = np.linalg.svd(total, full_matrices=False)
        kept = carrying(values)
        if not kept.any():
            return total
        even: Matrix = float(values[kept].mean()) * (lefts[:, kept] @ rights[kept])
        return even
