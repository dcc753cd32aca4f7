"""How much of each client's change arrives in the next adapter, and whether clients' changes agree, by products.

    change_k = B_k A_k - B_0 A_0            merged = next product, residual included, less the broadcast one
    effective_step_k  = <merged, change_k> / |change_k|^2        1: all of it, 1 / K: what a mean keeps of orthogonal ones
    product_cosine_ij = <change_i, change_j> / (|change_i| |change_j|)

over all modules and over the tensors that are in no pair. Unlike cosines of the factors, these do not depend on how the
factors are turned. No product is written out: <B A, D C> is the sum over (B^T D) * (A C^T), entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedse.adapters.plan import RESIDUAL, TensorPlan, in_part, sent
from fedse.aggregators.diagnostics import EXACT_UP_TO
from fedse.aggregators.factors import Factors, Matrix, pairs
from fedse.protocols import StoredUpdate
from fedse.types import Adapter


def effective_steps(
    before: Adapter, after: Adapter, updates: Sequence[StoredUpdate], plan: TensorPlan
) -> dict[str, Any]:
    """Numbers for the report; none where clients are too many to compare or keep a factor to themselves."""
    if len(updates) > EXACT_UP_TO or set(plan.trained) - set(plan.sent):
        return {}
    # Row and column 0 belong to the broadcast, the last to the next adapter, those between to the clients.
    gram = _inner_products(before, after, updates, plan)
    changes = np.hstack([-np.ones((len(gram) - 1, 1)), np.eye(len(gram) - 1)])
    between = changes @ gram @ changes.T
    squares = np.diag(between)[:-1].clip(min=0.0)
    names = [update.client for update in updates]
    norms = np.sqrt(squares)
    found: dict[str, Any] = {
        "effective_step": {
            name: float(between[-1, index] / squares[index]) if squares[index] > 0 else 0.0
            for index, name in enumerate(names)
        }
    }
    found["product_cosine"] = {
        f"{names[i]}|{names[j]}": float(between[i, j] / (norms[i] * norms[j])) if norms[i] * norms[j] > 0 else 0.0
        for i in range(len(names))
        for j in range(i + 1, len(names))
    }
    return found


def _inner_products(before: Adapter, after: Adapter, updates: Sequence[StoredUpdate], plan: TensorPlan) -> Matrix:
    """Of the broadcast, every client's adapter and the next one."""
    factors = Factors(updates)
    asked = {name for name, _ in sent(before, plan).layout}
    modules, lone = pairs(before.layout)
    gram = np.zeros((len(updates) + 2, len(updates) + 2))

    def of_clients(name: str) -> list[Matrix]:
        # A factor that nobody sends is the broadcast one.
        return factors[name] if name in asked else [before.tensors[name].astype(np.float64)] * len(updates)

    for name in lone:
        ends = before.tensors[name].astype(np.float64), after.tensors[name].astype(np.float64)
        flat = np.stack([value.ravel() for value in (ends[0], *of_clients(name), ends[1])])
        gram += flat @ flat.T
    for down, up in modules:
        ups = [before.tensors[up].astype(np.float64), *of_clients(up), *_with_residual(before, after, up, -1.0)]
        downs = [before.tensors[down].astype(np.float64), *of_clients(down), *_with_residual(before, after, down, 1.0)]
        wide, tall = np.hstack(ups), np.vstack(downs)
        entries = (wide.T @ wide) * (tall @ tall.T)
        starts = np.cumsum([0, *(each.shape[1] for each in ups[:-1])])
        gram += np.add.reduceat(np.add.reduceat(entries, starts, axis=0), starts, axis=1)
    return gram


def _with_residual(before: Adapter, after: Adapter, name: str, sign: float) -> list[Matrix]:
    """A factor of the next pair, with the frozen ranks that came beside it and, `sign`, without those that were there."""
    frozen = in_part(name, RESIDUAL)
    held = [after.tensors[name], *(each for each in [after.tensors.get(frozen)] if each is not None)]
    gone = before.tensors.get(frozen)
    parts = [each.astype(np.float64) for each in held]
    if gone is not None:
        parts.append(sign * gone.astype(np.float64))
    return [np.hstack(parts) if ".lora_B." in name else np.vstack(parts)]
