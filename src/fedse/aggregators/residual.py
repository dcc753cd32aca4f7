"""What FedEx-LoRA and FLoRA share: what the shared pair cannot hold is broadcast as further, frozen ranks.

The papers add a residual to the base model. Here it stays beside it as a second pair of factors, so that all clients keep
one frozen base, quantised or not: X.lora_A.residual.weight and X.lora_B.residual.weight (see `adapters/plan.py`). Residuals
of successive rounds are merged by SVD; only ranks that carry something are kept, the same number for each module.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from fedse.adapters.plan import RESIDUAL, in_part
from fedse.aggregators.factors import Factors, Matrix, as_float32, carrying, decompose, pairs
from fedse.aggregators.rule import MEAN_PRODUCT, Result, Rule
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ServerState


class ResidualOptions(PluginOptions):
    """How much is broadcast beside the shared pair."""

    rank: int | None = Field(default=None, ge=1)
    """Most ranks of the residual; what does not fit is lost and reported. When not set, all that are needed: up to
    (clients - 1) or clients times the rank more each round, and never more than the smaller side of the largest module."""


class ResidualRule(Rule):
    """A variant overrides `split`."""

    Options = ResidualOptions
    new_factors = True

    def __init__(self, rank: int | None = None) -> None:
        self.rank = ResidualOptions(rank=rank).rank
        self.promises = frozenset({MEAN_PRODUCT, *self.also_promised} if self.rank is None else self.also_promised)

    also_promised: frozenset[str] = frozenset()

    @property
    def adds_ranks(self) -> bool:
        """Whether further ranks may be broadcast beside the shared pair."""
        return self.rank != 0

    @abstractmethod
    def split(
        self, ups: Sequence[Matrix], downs: Sequence[Matrix], name: str, state: ServerState
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """The next shared B and A of a module, and the factors of what they leave out of the mean of products."""
        raise NotImplementedError

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        factors = Factors(updates)
        modules, lone = pairs(self.asked(state).layout)
        found = {name: factors.mean(name) for name in lone}
        left_out: dict[tuple[str, str], tuple[Matrix, Matrix, Matrix]] = {}
        for down, up in modules:
            found[up], found[down], more_up, more_down = self.split(factors[up], factors[down], down, state)
            left_out[down, up] = decompose(*_joined(state.adapter, up, down, more_up, more_down))
        rank = max((_needed(*where, found, values) for where, (_, values, _) in left_out.items()), default=0)
        rank = rank if self.rank is None else min(rank, self.rank)
        whole = sum(float(np.sum(values**2)) for _, values, _ in left_out.values())
        lost = sum(float(np.sum(values[rank:] ** 2)) for _, values, _ in left_out.values())
        if rank:
            for (down, up), (lefts, values, rights) in left_out.items():
                roots = np.sqrt(values[:rank])
                short = rank - len(roots)
                found[in_part(up, RESIDUAL)] = np.pad(lefts[:, :rank] * roots, ((0, 0), (0, short)))
                found[in_part(down, RESIDUAL)] = np.pad(rights[:rank] * roots[:, None], ((0, short), (0, 0)))
        adapter = Adapter({**state.adapter.tensors, **as_float32(found)}, state.adapter.config)
        numbers = {"residual_rank": float(rank), "residual_lost": float(np.sqrt(lost / whole)) if whole > 0 else 0.0}
        return ServerState(state.round + 1, adapter, state.memory), numbers


def _joined(adapter: Adapter, up: str, down: str, more_up: Matrix, more_down: Matrix) -> tuple[Matrix, Matrix]:
    """The residual so far and what is added to it, side by side."""
    before_up, before_down = (adapter.tensors.get(in_part(name, RESIDUAL)) for name in (up, down))
    if before_up is None or before_down is None:
        return more_up, more_down
    return np.hstack([before_up.astype(np.float64), more_up]), np.vstack([before_down.astype(np.float64), more_down])


def _needed(down: str, up: str, found: Mapping[str, Matrix], values: Matrix) -> int:
    """Ranks that carry more than rounding errors."""
    shared = float(np.linalg.norm(found[up]) * np.linalg.norm(found[down]))
    return int(carrying(values, shared).sum())
