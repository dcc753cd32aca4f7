"""TIES in core space: large entries only, and only those whose sign wins (Yadav and others, arXiv 2306.01708).

    trim      of each change, the `keep` share of entries that are largest
    elect     for each entry, the sign of the sum over clients
    merge     merged = for each entry, the mean over the clients whose trimmed entry has that sign
    next product = B_0 A_0 + scale * merged

The entries are those of the changes' cores (arXiv 2509.17786), not of the factors, which could be turned without changing
any product.
Cost: as told in `product_merge.py`, with frozen ranks for what does not fit into the pair.
Helps: where clients learn different things and few directions of each matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedse.aggregators.factors import Matrix
from fedse.aggregators.product_merge import ProductMerge, ProductMergeOptions


class TiesMergeOptions(ProductMergeOptions):
    """What is kept of each change."""

    keep: float = Field(default=0.2, gt=0, le=1)
    """Share of a change's entries that is kept, the largest; 0.2 is the paper's."""


class TiesMerge(ProductMerge):
    """The mean of the clients' largest entries of the sign that wins, in core space."""

    Options = TiesMergeOptions

    def merged(self, changes: Sequence[Matrix], rank: int) -> Matrix:
        del rank  # Entries are kept, not ranks.
        return elected_mean(np.stack([trimmed(change, self.options.keep) for change in changes]))


def trimmed(change: Matrix, keep: float) -> Matrix:
    """The largest entries; the others are zero."""
    size = np.abs(change)
    kept = max(1, round(keep * size.size))
    smallest = np.partition(size, size.size - kept, axis=None)[size.size - kept]
    return np.where(size >= smallest, change, 0.0)


def elected_mean(changes: Matrix) -> Matrix:
    """The mean over the clients that have the sign of the sum."""
    agrees = (np.sign(changes) == np.sign(changes.sum(axis=0))) & (changes != 0)
    summed: Matrix = np.where(agrees, changes, 0.0).sum(axis=0)
    mean: Matrix = summed / np.maximum(agrees.sum(axis=0), 1)
    return mean
