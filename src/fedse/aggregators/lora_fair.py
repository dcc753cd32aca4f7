"""LoRA-FAIR: the mean of B is corrected towards the mean of products (Bian and others, arXiv 2411.14961).

    R = mean_k B_k A_k - mean(B) mean(A)
    next A = mean(A)            next B = mean(B) + D,   D = R A^T (A A^T + s I)^-1 with A = mean(A)

D minimises || (mean(B) + D) mean(A) - mean_k B_k A_k ||^2 + s || D ||^2, with s = `strength` times the mean squared norm of
the rows of mean(A). The paper measures closeness by a cosine and takes gradient steps; this is the closed form for the
squared error. Tensors that belong to no pair are averaged.
Cost: traffic as `mean`; for a module of d outputs and k inputs the server needs about 2 K r^2 (d + k) operations and holds
the factors of one module of all clients and one vector.
Helps: where `product_gap` is large and neither traffic nor rank may grow: it recovers the part of the gap that lies in the
row space of mean(A), and nothing beyond.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedse.aggregators.factors import Factors, Matrix, as_float32, pairs
from fedse.aggregators.rule import EQUAL_UPDATES, Result, Rule
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ServerState


class LoraFairOptions(PluginOptions):
    """How strongly B is held at its mean."""

    strength: float = Field(default=0.01, gt=0)
    """Weight of the correction's own size, in units of the mean squared norm of A's rows."""


class LoraFair(Rule):
    """The means of A and B, with B corrected towards the mean of the clients' products."""

    Options = LoraFairOptions
    promises = frozenset({EQUAL_UPDATES})

    def __init__(self, strength: float = 0.01) -> None:
        self.strength = LoraFairOptions(strength=strength).strength

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        factors = Factors(updates)
        modules, lone = pairs(self.asked(state).layout)
        found = {name: factors.mean(name) for name in lone}
        moved = size = 0.0
        for down, up in modules:
            downs, ups = factors[down], factors[up]
            mean_down, mean_up = np.mean(downs, axis=0), np.mean(ups, axis=0)
            # R A^T without R: the mean of B_k (A_k A^T) less mean(B) (A A^T).
            gram = mean_down @ mean_down.T
            seen = np.zeros_like(mean_up)
            for own_up, own_down in zip(ups, downs, strict=True):
                seen += own_up @ (own_down @ mean_down.T) / len(updates)
            strength = self.strength * float(np.trace(gram)) / len(gram)
            correction: Matrix = np.zeros_like(mean_up)
            if strength > 0:
                correction[:] = np.linalg.solve(gram + strength * np.eye(len(gram)), (seen - mean_up @ gram).T).T
            found[down], found[up] = mean_down, mean_up + correction
            moved += float(np.sum(correction**2))
            size += float(np.sum(mean_up**2))
        adapter = Adapter({**state.adapter.tensors, **as_float32(found)}, state.adapter.config)
        correction_share = float(np.sqrt(moved / size)) if size > 0 else 0.0
        return ServerState(state.round + 1, adapter, state.memory), {"correction": correction_share}
