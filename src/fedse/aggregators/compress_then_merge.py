"""Compress, then merge: one adapter of the clients' rank by construction (He and others, arXiv 2606.03723).

    products P_k = B_k A_k, each brought part of the way to the mean norm: P_k (balance + (1 - balance) mean|P| / |P_k|)
    U, V: the r left and r right directions that together hold most of all of them (Tucker, alternating)
    next product = U (U^T B_0 A_0 V + scale * TIES of U^T change_k V) V^T            change_k = B_k A_k - B_0 A_0

Nothing is truncated after merging, and nothing is broadcast beside the pair. In the first round B_0 = 0 and this is the
paper's merge of finished adapters; later the broadcast product is part of all the clients' and compressed with them
(`compressed` in the report is the share of the clients' changes that lies outside the chosen directions and is lost).
Tensors that belong to no pair are averaged.
Cost: traffic as `mean`; for a module of d outputs and k inputs the server needs about 6 (d + k) ((K + 1) r)^2 operations and
holds the factors of one module of all clients.
Helps: where changes go different ways and the adapter must keep its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from fedse.aggregators.factors import Factors, Matrix, as_float32, padded, pairs
from fedse.aggregators.product_merge import space_of
from fedse.aggregators.rule import Result, Rule
from fedse.aggregators.ties_merge import elected_mean, trimmed
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ServerState

_TURNS = 10
"""Of the alternation between U and V; on random adapters the share that is held rose by less than 1e-3 after four."""


class CompressThenMergeOptions(PluginOptions):
    """The defaults are those of the paper's example but for the scale, which was searched there."""

    scale: float = Field(default=1.0, gt=0)
    """Factor of the merged change."""
    keep: float = Field(default=0.25, gt=0, le=1)
    """Share of a compressed change's entries that is kept, the largest."""
    balance: float = Field(default=0.25, ge=0, le=1)
    """How far clients with long changes count for more when directions are chosen: 0 all alike, 1 by their norms."""


class CompressThenMerge(Rule):
    """TIES of the clients' changes inside the few directions that hold most of all of them: the rank stays as it is."""

    Options = CompressThenMergeOptions
    new_factors = True

    def __init__(self, **options: Any) -> None:
        self.options = CompressThenMergeOptions.model_validate(options)

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        factors = Factors(updates)
        modules, lone = pairs(self.asked(state).layout)
        found = {name: factors.mean(name) for name in lone}
        held = whole = 0.0
        for down, up in modules:
            space, rank = space_of(factors[up], factors[down], down, state), len(state.adapter.tensors[down])
            lefts, rights = directions(self.balanced(space.clients), rank)
            changes = np.stack([lefts.T @ change @ rights for change in space.changes])
            merged = elected_mean(np.stack([trimmed(change, self.options.keep) for change in changes]))
            core = lefts.T @ space.broadcast @ rights + self.options.scale * merged
            found[up], found[down] = padded(*space.factors(lefts @ core @ rights.T), rank)
            held += float(np.sum(changes**2))
            whole += float(np.sum(np.square(space.changes)))
        adapter = Adapter({**state.adapter.tensors, **as_float32(found)}, state.adapter.config)
        lost = float(np.sqrt(max(0.0, 1 - held / whole))) if whole > 0 else 0.0
        return ServerState(state.round + 1, adapter, state.memory), {"compressed": lost}

    def balanced(self, products: Sequence[Matrix]) -> Matrix:
        norms = np.array([np.linalg.norm(product) for product in products])
        present = norms > 0
        if not present.any():
            return np.stack(products)
        factors = np.ones(len(norms))
        factors[present] = self.options.balance + (1 - self.options.balance) * norms[present].mean() / norms[present]
        return np.stack(products) * factors[:, None, None]


def directions(products: Matrix, rank: int) -> tuple[Matrix, Matrix]:
    """So many left and right directions that together hold as much of all products as alternation finds."""
    rights = _leading(np.concatenate(list(products), axis=0).T, rank)
    for _ in range(_TURNS):
        lefts = _leading(np.concatenate([product @ rights for product in products], axis=1), rank)
        rights = _leading(np.concatenate([product.T @ lefts for product in products], axis=1), rank)
    return lefts, rights


def _leading(columns: Matrix, rank: int) -> Matrix:
    return np.linalg.svd(columns, full_matrices=False)[0][:, :rank]
