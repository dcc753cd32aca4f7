"""FedExP on products: the longer step without cross terms (Jhunjhunwala, Wang and Joshi, arXiv 2301.09604).

    change_k = B_k A_k - B_0 A_0
    step     = scale * sum_k |change_k|^2 / (2 K |mean change|^2), at least 1 and at most `longest`
    next product = B_0 A_0 + step * mean change

`fedexp` takes the step on A and B, which also lengthens products of one client's B with another's A; here there are none.
Norms are taken over all modules together.
Cost: as told in `product_merge.py`, with frozen ranks for what does not fit into the pair; each update is read
twice.
Helps: as `fedexp`, where frozen ranks beside the adapter are affordable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from fedse.aggregators.factors import Factors, pairs
from fedse.aggregators.product_merge import ProductMergeOptions, space_of
from fedse.aggregators.rule import Result, Rule
from fedse.aggregators.task_arithmetic import TaskArithmetic
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


class FedExPProductsOptions(ProductMergeOptions):
    """A scale of 1 is the paper's step."""

    longest: float | None = Field(default=None, ge=1)
    """Largest step, in mean changes; null is the number of updates, which makes it their sum."""


class FedExPProducts(Rule):
    """The mean change in product space, taken further the less the clients' changes agree."""

    Options = FedExPProductsOptions
    new_factors = True

    def __init__(self, **options: Any) -> None:
        self.options = FedExPProductsOptions.model_validate(options)
        self.adds_ranks = self.options.rank != 0

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        step = self.step(state, updates)
        adding = TaskArithmetic(scale=step / len(updates), rank=self.options.rank)
        following, numbers = adding.combine(state, updates)
        return following, {**numbers, "server_step": step}

    def step(self, state: ServerState, updates: Sequence[StoredUpdate]) -> float:
        """How many mean changes to go."""
        factors = Factors(updates)
        squares = mean_square = 0.0
        for down, up in pairs(self.asked(state).layout)[0]:
            changes = space_of(factors[up], factors[down], down, state).changes
            squares += sum(float(np.sum(change**2)) for change in changes)
            mean_square += float(np.sum(np.mean(changes, axis=0) ** 2))
        below = 2 * len(updates) * mean_square
        wanted = self.options.scale * squares / below if below > 0 else 1.0
        return max(1.0, min(wanted, self.options.longest or len(updates)))
