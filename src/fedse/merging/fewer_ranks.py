"""An adapter with fewer ranks that does nearly the same: the best one of so many, module by module (truncated SVD)."""

from __future__ import annotations

import numpy as np

from fedse.adapters.first import further_ranks, rank_of
from fedse.adapters.plan import RESIDUAL, in_part
from fedse.aggregators.factors import Matrix, as_float32, decompose, padded, pairs
from fedse.types import Adapter


def with_ranks(adapter: Adapter, most: int) -> tuple[Adapter, float]:
    """At most so many ranks, not fewer than clients train, and the share of the products' norm that is lost. The d x k
    products are never written out."""
    shared = rank_of(adapter)
    if shared + further_ranks(adapter) <= most:
        return adapter, 0.0
    modules, lone = pairs(adapter.layout)
    found: dict[str, Matrix] = {name: adapter.tensors[name].astype(np.float64) for name in lone}
    lost = whole = 0.0
    for down, up in modules:
        lefts, values, rights = decompose(*_whole_pair(adapter, up, down))
        found[up], found[down] = padded(lefts * values, rights, shared)
        if most > shared:
            beyond = slice(shared, None)
            found[in_part(up, RESIDUAL)], found[in_part(down, RESIDUAL)] = padded(
                (lefts * values)[:, beyond], rights[beyond], most - shared
            )
        lost += float(np.sum(values[most:] ** 2))
        whole += float(np.sum(values**2))
    return Adapter(as_float32(found), adapter.config), float(np.sqrt(lost / whole)) if whole > 0 else 0.0


def _whole_pair(adapter: Adapter, up: str, down: str) -> tuple[Matrix, Matrix]:
    """The pair that clients train and the frozen one beside it, as one."""
    ups, downs = ([adapter.tensors[name], adapter.tensors[in_part(name, RESIDUAL)]] for name in (up, down))
    return np.hstack(ups).astype(np.float64), np.vstack(downs).astype(np.float64)
