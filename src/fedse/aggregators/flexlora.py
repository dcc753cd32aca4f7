"""FlexLoRA: the best adapter of the broadcast rank for the mean of products (Bai and others, arXiv 2402.11505).

    U S V = SVD of mean_k B_k A_k            next B = U_r S_r,   next A = V_r            (the r largest singular values)

The product is as close to the mean of products as rank r allows; `truncated` in the report is the share of its norm that is
lost. Tensors that belong to no pair are averaged.
Cost: traffic as `mean`; for a module of d outputs and k inputs the server needs about 4 (d + k) (K r)^2 + 20 (K r)^3
operations and holds the factors of one module of all clients; the d x k product is never written out.
Helps: where clients have different ranks, and where they drift so far apart that `product_gap` is large. It turns the
factors even when a single client sends an update; only the product is meant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Factors, as_float32, decompose, padded, pairs, side_by_side
from fedse.aggregators.rule import MIXED_RANKS, Result, Rule
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ServerState


class FlexLora(Rule):
    """The best adapter of the broadcast rank for the mean of the clients' products, by SVD."""

    promises = frozenset({MIXED_RANKS})
    new_factors = True

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        factors = Factors(updates)
        modules, lone = pairs(self.asked(state).layout)
        found = {name: factors.mean(name) for name in lone}
        lost = whole = 0.0
        for down, up in modules:
            rank = state.adapter.tensors[down].shape[0]
            lefts, values, rights = decompose(*side_by_side(factors[up], factors[down]))
            found[up], found[down] = padded(lefts * values, rights, rank)
            whole += float(np.sum(values**2))
            lost += float(np.sum(values[rank:] ** 2))
        adapter = Adapter({**state.adapter.tensors, **as_float32(found)}, state.adapter.config)
        truncated = float(np.sqrt(lost / whole)) if whole > 0 else 0.0
        return ServerState(state.round + 1, adapter, state.memory), {"truncated": truncated}
