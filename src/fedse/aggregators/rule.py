"""What the aggregators of fedse have in common: nobody sent anything, an update that does not fit, the next state.

What an aggregator promises beyond that stands in its `promises`, in the words below; `check_aggregator` tries it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from fedse.adapters.packing import unpack
from fedse.adapters.plan import Plan, TensorPlan, factor, sent
from fedse.errors import BadInput
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, Layout, ServerState, Tensors, Vector

EQUAL_UPDATES = "equal updates"
"""Equal updates give the adapter they all hold, as long as the aggregator remembers nothing."""
MEAN_PRODUCT = "mean product"
"""The next adapter's product B A is the mean of the clients' products, not only that of means."""
MIXED_RANKS = "mixed ranks"
"""Updates may have fewer or more ranks than the broadcast adapter."""
ONLY_THE_SUM = "only the sum"
"""The mean of the updates, in the place of all of them, gives the same: a secure sum is enough for it."""
SUM_AND_SQUARES = "sum and squares"
"""The mean of the updates with their number and the mean square of their changes' lengths (`SummedUpdate`), in the place of
all of them, gives the same: a secure sum in which sites add the squares too is enough for it."""
PROMISES = (EQUAL_UPDATES, MEAN_PRODUCT, MIXED_RANKS, ONLY_THE_SUM, SUM_AND_SQUARES)

PIECE = 1 << 20
"""Values of all clients together that a rule which compares them holds at once."""

Result = tuple[ServerState, Mapping[str, float]]


class Rule:
    """A variant overrides `combine`, which has at least one update, each with the layout that was asked for."""

    plan: Plan = TensorPlan()
    promises: frozenset[str] = frozenset()
    needs_counts: frozenset[str] = frozenset()
    """Counts that it weighs updates by; an update that does not tell them cannot be used."""

    def aggregate(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        if not updates:
            return replace(state, round=state.round + 1), {}
        asked = self.asked(state).layout
        for update in updates:
            if not (update.layout == asked or (MIXED_RANKS in self.promises and _but_for_ranks(update.layout, asked))):
                raise BadInput(
                    f"the update of client '{update.client}' has other tensors or ranks than {type(self).__name__} "
                    "can combine with the broadcast adapter: give all clients the same adapter."
                )
        return self.combine(state, updates)

    @abstractmethod
    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        raise NotImplementedError

    def asked(self, state: ServerState) -> Adapter:
        """The part of the broadcast adapter that updates hold."""
        return sent(state.adapter, self.plan.in_round(state.round + 1))

    def following(self, state: ServerState, vector: Vector, memory: Tensors | None = None) -> ServerState:
        """The next state: the asked part replaced by the packed one, and everything else as it was."""
        changed = unpack(vector, self.asked(state).layout, {}).tensors
        adapter = Adapter({**state.adapter.tensors, **changed}, state.adapter.config)
        return ServerState(state.round + 1, adapter, state.memory if memory is None else memory)


def count(update: StoredUpdate, name: str) -> int:
    """A number that an update carries."""
    if name not in update.counts:
        raise BadInput(f"the update of client '{update.client}' carries no count '{name}', which the aggregator needs.")
    return update.counts[name]


def pieces(size: int, clients: int) -> list[tuple[int, int]]:
    """Bounds of the pieces in which a vector of all clients is read."""
    step = max(1, PIECE // clients)
    return [(start, min(size, start + step)) for start in range(0, size, step)]


def _but_for_ranks(layout: Layout, asked: Layout) -> bool:
    return [_without_rank(*entry) for entry in layout] == [_without_rank(*entry) for entry in asked]


def _without_rank(name: str, shape: tuple[int, ...]) -> tuple[Any, ...]:
    if factor(name) == "A":
        return name, shape[1:], bool(prod(shape))
    return (name, shape[:-1], bool(prod(shape))) if factor(name) == "B" else (name, shape)
