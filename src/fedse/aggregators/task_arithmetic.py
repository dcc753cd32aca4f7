"""Task arithmetic: the changes of the products are added up (Ilharco and others, arXiv 2212.04089).

    next product = B_0 A_0 + scale * sum_k change_k            change_k = B_k A_k - B_0 A_0

A scale of 1 / K is the mean of products.
Cost: as told in `product_merge.py`, with frozen ranks for what does not fit into the pair.
Helps: where clients learn different things, so that the mean keeps too little of each; a long step on products has none of
the cross terms (one client's B with another's A) that the same step on the factors has. Where clients agree, a scale above
1 / K takes the same step several times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Matrix
from fedse.aggregators.product_merge import ProductMerge


class TaskArithmetic(ProductMerge):
    """The sum of the clients' changes, in product space, times a scale."""

    def merged(self, changes: Sequence[Matrix], rank: int) -> Matrix:
        del rank  # A sum needs none.
        total: Matrix = np.sum(changes, axis=0)
        return total
