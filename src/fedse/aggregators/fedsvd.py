"""FedSVD: clients train and send B only, and the server turns A to where B grew (Lee and others, arXiv 2505.12805).

    U S V = SVD of mean_k(B_k) A            next B = U S,   next A = V            (rank r: nothing is cut off)

Exact: with one A, the mean of products is the product of means, which new factors only write in another way. The rows of
the next A are orthonormal, so that a gradient of B is no longer than that of the whole matrix; the first A is as it was
drawn. They span what the rows of A spanned: what is not in there is never learned, as with `ffa_lora`.
Cost: half of `mean` up (B only) and one adapter down; the server holds one adapter in float64 and decomposes matrices of r
columns. Learners have to leave A alone, which `imitation` does (see `adapters/plan.py`).
Helps: with noise on gradients (`learner: dp_imitation`), which is then on one factor alone and not made longer by A.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.adapters.plan import TensorPlan
from fedse.aggregators.factors import Factors, Matrix, as_float32, padded, pairs
from fedse.aggregators.rule import MEAN_PRODUCT, ONLY_THE_SUM, Result, Rule
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ServerState


class FedSvd(Rule):
    """The mean of B, and both factors turned by an SVD so that A, which nobody trains, has orthonormal rows."""

    plan = TensorPlan(trained="B", sent="B")
    promises = frozenset({MEAN_PRODUCT, ONLY_THE_SUM})
    new_factors = True

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        factors, tensors = Factors(updates), state.adapter.tensors
        found = {name: factors.mean(name) for name, _ in self.asked(state).layout}
        for down, up in pairs(state.adapter.layout)[0]:
            found[up], found[down] = turned(found[up], tensors[down].astype(np.float64))
        return ServerState(
            state.round + 1, Adapter({**tensors, **as_float32(found)}, state.adapter.config), state.memory
        ), {}


def turned(up: Matrix, down: Matrix) -> tuple[Matrix, Matrix]:
    """Factors of the same product, the second with orthonormal rows, in the order of singular values. Where a module has
    fewer inputs than ranks, the last rows are zero."""
    rank = len(down)
    rows, core = np.linalg.qr(down.T)
    weights = up @ core.T
    turn = np.linalg.svd(np.linalg.qr(weights, mode="r"))[2]
    # With signs that are always the same.
    turn *= np.where(turn[np.arange(len(turn)), np.abs(turn).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    return padded(weights @ turn.T, turn @ rows.T, rank)
