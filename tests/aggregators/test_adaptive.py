"""Weights that follow each client's gain over its own history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedse.adapters.packing import pack
from fedse.aggregators.adaptive import Adaptive
from fedse.aggregators.check import HeldUpdate, some_state
from fedse.types import ServerState

STATE = some_state()


def updates(rates: Sequence[tuple[int, int]], errors: int = 0) -> list[HeldUpdate]:
    """Client n sends the constant n; it had so many successes of so many episodes."""
    size = len(pack(STATE.adapter))
    return [
        HeldUpdate(
            f"site-{number}",
            STATE.adapter.layout,
            np.full(size, number, dtype=np.float32),
            {"successes": successes, "explored": episodes + errors, "errors": errors},
        )
        for number, (successes, episodes) in enumerate(rates)
    ]


def value(state: ServerState) -> float:
    (found,) = set(pack(state.adapter).tolist())
    return float(found)


def step(aggregator: Any, state: ServerState, *rates: tuple[int, int]) -> tuple[ServerState, Any]:
    return aggregator.aggregate(state, updates(rates))  # type: ignore[no-any-return]


def test_the_first_round_is_the_plain_mean_whatever_the_rates() -> None:
    state, numbers = step(Adaptive(), STATE, (0, 10), (9, 10), (5, 10))
    assert value(state) == pytest.approx(1.0)
    assert numbers["mean_gain"] == 0
    assert {name: float(held[0]) for name, held in state.memory.items()} == pytest.approx(
        {"history.site-0": 0.0, "history.site-1": 0.9, "history.site-2": 0.5}
    )


def test_the_second_round_follows_the_formula() -> None:
    aggregator = Adaptive(sharpness=2.0, memory=0.25)
    state, _ = step(aggregator, STATE, (2, 10), (9, 10))
    following, numbers = step(aggregator, state, (7, 10), (9, 10))
    weights = np.exp(2.0 * np.array([0.5, 0.0]))
    assert value(following) == pytest.approx(weights[1] / weights.sum(), rel=1e-5)
    assert numbers == pytest.approx({"largest_weight": weights[0] / weights.sum(), "mean_gain": 0.25}, rel=1e-5)
    assert float(following.memory["history.site-0"][0]) == pytest.approx(0.25 * 0.2 + 0.75 * 0.7)
    # From here on site 0 is measured by its risen history.
    third, _ = step(aggregator, following, (7, 10), (9, 10))
    weights = np.exp(2.0 * np.array([0.7 - 0.575, 0.0]))
    assert value(third) == pytest.approx(weights[1] / weights.sum(), rel=1e-5)


def test_an_easy_world_weighs_no_more_than_a_hard_one() -> None:
    aggregator = Adaptive()
    state, _ = step(aggregator, STATE, (1, 20), (19, 20))
    for _ in range(3):
        state, _ = step(aggregator, state, (1, 20), (19, 20))
        assert value(state) == pytest.approx(0.5)


def test_without_sharpness_it_is_the_mean_and_a_negative_one_turns_it_round() -> None:
    values = {}
    for sharpness in (0.0, 4.0, -4.0):
        aggregator = Adaptive(sharpness=sharpness)
        state, _ = step(aggregator, STATE, (5, 10), (5, 10))
        state, _ = step(aggregator, state, (2, 10), (8, 10))
        values[sharpness] = value(state)
    assert values[0.0] == pytest.approx(0.5)
    assert values[4.0] > 0.9 and values[-4.0] == pytest.approx(1 - values[4.0])


def test_episodes_that_broke_are_not_failures_and_no_episodes_are_no_news() -> None:
    state, _ = Adaptive().aggregate(STATE, updates([(5, 10), (5, 10)], errors=90))
    assert float(state.memory["history.site-0"][0]) == 0.5
    again, numbers = step(Adaptive(), state, (0, 0), (5, 10))
    assert value(again) == pytest.approx(0.5) and numbers["mean_gain"] == 0
    assert float(again.memory["history.site-0"][0]) == 0.5


def test_a_client_that_sat_out_keeps_its_history() -> None:
    state, _ = step(Adaptive(), STATE, (5, 10), (6, 10))
    alone, _ = Adaptive().aggregate(state, updates([(9, 10)]))
    assert alone.memory.keys() == {"history.site-0", "history.site-1"}
    assert value(alone) == 0.0


def test_extreme_options_stay_finite() -> None:
    aggregator = Adaptive(sharpness=1e6)
    state, _ = step(aggregator, STATE, (0, 10), (0, 10))
    state, _ = step(aggregator, state, (10, 10), (0, 10))
    assert value(state) == 0.0
