"""FedExP against its formula: a step that grows as clients disagree, and is the mean where they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedse.adapters.held_update import HeldUpdate
from fedse.adapters.packing import modules, pack, unpack
from fedse.adapters.plan import sent
from fedse.aggregators.check import check_aggregator, some_state
from fedse.aggregators.fedexp import FedExP
from fedse.aggregators.mean import Mean
from fedse.types import Adapter

STATE = some_state()
BROADCAST = pack(STATE.adapter).astype(np.float64)
SIZE = len(BROADCAST)


def updates(changes: Sequence[Any]) -> list[HeldUpdate]:
    return [
        HeldUpdate(f"c{number}", STATE.adapter.layout, (BROADCAST + change).astype(np.float32))
        for number, change in enumerate(changes)
    ]


def outcome(aggregator: Any, changes: Sequence[Any]) -> tuple[np.ndarray[Any, Any], float]:
    state, numbers = aggregator.aggregate(STATE, updates(changes))
    return pack(state.adapter), numbers.get("server_step", 1.0)


def apart(clients: int, length: float = 1.0) -> list[np.ndarray[Any, Any]]:
    """Changes of one length in places of their own."""
    changes = np.zeros((clients, SIZE))
    for number in range(clients):
        changes[number, number::clients] = 1.0
    return list(length * changes / np.linalg.norm(changes, axis=1, keepdims=True))


def test_the_step_is_the_papers() -> None:
    changes = 0.1 * np.random.default_rng(0).standard_normal((4, SIZE)) + 0.02
    mean = changes.mean(axis=0)
    step = (changes**2).sum() / (2 * 4 * ((mean**2).sum() + 0.3))
    assert step > 1
    found, told = outcome(FedExP(epsilon=0.3), changes)
    assert told == pytest.approx(step, rel=1e-4)
    np.testing.assert_allclose(found, BROADCAST + step * mean, atol=1e-5)


@pytest.mark.parametrize("clients", [3, 5, 8])
def test_orthogonal_changes_are_taken_half_a_client_far(clients: int) -> None:
    changes = apart(clients)
    found, told = outcome(FedExP(), changes)
    assert told == pytest.approx(clients / 2, rel=1e-3)
    # Of its own change each client gets a half instead of 1 / K.
    for change in changes:
        assert (found - BROADCAST) @ change == pytest.approx(0.5, rel=1e-3)


def test_changes_that_agree_give_the_mean_bit_for_bit() -> None:
    change = np.random.default_rng(1).standard_normal(SIZE)
    near = [change + 0.01 * np.random.default_rng(seed).standard_normal(SIZE) for seed in range(4)]
    found, told = outcome(FedExP(), near)
    assert told == 1.0
    assert (found == outcome(Mean(), near)[0]).all()


def test_gain_and_bound() -> None:
    changes = apart(5)
    assert outcome(FedExP(gain=1.6), changes)[1] == pytest.approx(4.0, rel=1e-3)
    assert outcome(FedExP(gain=1.6, longest=3), changes)[1] == 3.0
    assert outcome(FedExP(gain=0.1), changes)[1] == 1.0


def test_nothing_changed_stays_finite() -> None:
    found, told = outcome(FedExP(), [np.zeros(SIZE)] * 3)
    assert told == 1.0
    assert (found == BROADCAST.astype(np.float32)).all()
    # Changes that cancel each other have a mean of length 0 and no direction to go.
    change = np.random.default_rng(2).standard_normal(SIZE)
    opposite, told = outcome(FedExP(), [change, -change])
    assert told == 2.0
    np.testing.assert_allclose(opposite, BROADCAST, atol=1e-4)


def test_it_keeps_its_promises() -> None:
    assert all(finding.passed for finding in check_aggregator(FedExP))
    assert "equal updates" not in FedExP(gain=3.0).promises


@pytest.mark.parametrize("behind", [0, 1])
def test_in_turn_the_products_of_clients_add_up_without_any_of_two_clients(behind: int) -> None:
    """With a gain of 2 and orthogonal changes of one factor, the next product has every client's change in full."""
    aggregator = FedExP(gain=2.0, factors="in_turn")
    state = replace(STATE, round=behind)
    asked = sent(state.adapter, aggregator.plan.in_round(behind + 1))
    start, clients = pack(asked).astype(np.float64), 4
    changes = np.zeros((clients, len(start)))
    for number in range(clients):
        changes[number, number::clients] = 0.1
    given = [
        HeldUpdate(f"c{number}", asked.layout, (start + change).astype(np.float32))
        for number, change in enumerate(changes)
    ]
    following, told = aggregator.aggregate(state, given)
    assert told["server_step"] == pytest.approx(clients, rel=0.05)
    pairs = [pair for pair in modules(state.adapter.layout) if pair.keys() == {"A", "B"}]
    assert pairs
    for pair in pairs:
        before, after = (_product(adapter, pair) for adapter in (state.adapter, following.adapter))
        wanted = before.copy()
        for update in given:
            whole = Adapter({**state.adapter.tensors, **unpack(update.vector, asked.layout, {}).tensors}, {})
            wanted += told["server_step"] / clients * (_product(whole, pair) - before)
        np.testing.assert_allclose(after, wanted, atol=1e-5)


def _product(adapter: Adapter, pair: Any) -> Any:
    vector = pack(adapter).astype(np.float64)
    up, down = (vector[start:stop].reshape(shape) for shape, start, stop in (pair["B"], pair["A"]))
    return up @ down
