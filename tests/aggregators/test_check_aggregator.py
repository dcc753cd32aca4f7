"""The checker of aggregators: every aggregator of fedse passes, and each broken promise is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.adapters.plan import TensorPlan
from fedse.aggregators.check import check_aggregator
from fedse.aggregators.fedavgm import FedAvgM
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import EQUAL_UPDATES, MEAN_PRODUCT, MIXED_RANKS
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN
from fedse.types import Adapter, ServerState


def broken(factory: Any) -> set[str]:
    return {finding.name for finding in check_aggregator(factory) if not finding.passed}


@pytest.mark.parametrize("name", KNOWN["aggregator"])
def test_every_aggregator_keeps_its_promises(name: str) -> None:
    assert [finding for finding in check_aggregator(resolve("aggregator", name)) if not finding.passed] == []


class First(Mean):
    """Whoever comes first wins."""

    def weights(self, updates: Sequence[Any]) -> Any:
        return np.eye(1, len(updates))[0]


class Growing(Mean):
    """Sums where it should divide."""

    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        return self.following(state, np.sum([update.read() for update in updates], axis=0)), {}


class Doubling(Mean):
    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        following, numbers = super().combine(state, updates)
        return self.following(state, 2 * pack(following.adapter)), numbers


class Hidden(Mean):
    """Remembers a momentum in itself, where no checkpoint finds it."""

    last = 0.0

    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        following, _ = super().combine(state, updates)
        change = pack(following.adapter) - pack(state.adapter) + 0.5 * self.last
        self.last = change
        return self.following(state, pack(state.adapter) + change), {}


class Dice(Mean):
    def weights(self, updates: Sequence[Any]) -> Any:
        return np.random.random(len(updates)) + 0.1


class Writing(Mean):
    """Works in the arrays it was given."""

    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        following, numbers = super().combine(state, updates)
        for name, tensor in state.adapter.tensors.items():
            tensor[...] = following.adapter.tensors[name]
        return following, numbers


class Standing(Mean):
    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        following, numbers = super().combine(state, updates)
        return replace(following, round=state.round), numbers


class Dividing(Mean):
    """Scales by the spread of the updates, which may be nothing."""

    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        vectors = np.stack([update.read() for update in updates])
        with np.errstate(all="ignore"):
            scaled = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)
        return self.following(state, (vectors.mean(axis=0) + 0 * scaled.sum(axis=0)).astype(np.float32)), {}


class Helpless:
    """Has nothing to say when nobody sent anything, and takes any shape."""

    def aggregate(self, state: ServerState, updates: Sequence[Any]) -> Any:
        vector = updates[0].read()[:10] / np.float32(len(updates))
        name = sorted(state.adapter.tensors)[0]
        tensors = {**state.adapter.tensors, name: vector[: state.adapter.tensors[name].size].astype(np.float32)}
        return ServerState(state.round + 1, Adapter(tensors, state.adapter.config)), {}


class Forgetful(FedAvgM):
    """Remembers in half the precision of what it computes with."""

    def step(self, change: Any, memory: Any) -> Any:
        step, kept = super().step(change, memory)
        self.sharp = getattr(self, "sharp", 0.0) * 0.9 + change
        return step + 1e-3 * self.sharp, kept


class Boastful(Mean):
    promises = frozenset({EQUAL_UPDATES, MEAN_PRODUCT, MIXED_RANKS})


class Muddled(Mean):
    promises = frozenset({"everything"})


class Greedy(Mean):
    plan = TensorPlan(trained="B", sent="AB")


class Double(Mean):
    def combine(self, state: ServerState, updates: Sequence[Any]) -> Any:
        following, _ = super().combine(state, updates)
        tensors = {name: tensor.astype(np.float64) for name, tensor in following.adapter.tensors.items()}
        return replace(following, adapter=Adapter(tensors, {})), {"a loss": 1.0}


@pytest.mark.parametrize(
    ("aggregator", "promise"),
    [
        (First, "order of clients"),
        (Growing, EQUAL_UPDATES),
        (Doubling, "one client"),
        (Hidden, "same input, same result"),
        (Dice, "same input, same result"),
        (Writing, "inputs stay as they are"),
        (Standing, "next state"),
        (Dividing, "finite"),
        (Helpless, "no client"),
        (Helpless, "mixed ranks"),
        (Forgetful, "memory can be stored"),
        (Boastful, MEAN_PRODUCT),
        (Boastful, MIXED_RANKS),
        (Muddled, "declarations"),
        (Greedy, "declarations"),
        (Double, "next state"),
    ],
)
def test_a_broken_promise_is_found(aggregator: Any, promise: str) -> None:
    assert promise in broken(aggregator)


def test_the_checker_leaves_the_global_generators_as_they_were() -> None:
    np.random.seed(7)
    check_aggregator(Dice)
    np.random.seed(7)
    first = np.random.random()
    np.random.seed(7)
    check_aggregator(Dice)
    assert np.random.random() == first


def test_only_what_is_asked_for_is_tried() -> None:
    assert [finding.name for finding in check_aggregator(Mean, only=["finite"])] == ["finite"]
