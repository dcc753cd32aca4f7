"""Every signal, by values worked out by hand."""

from __future__ import annotations

from typing import get_args

import pytest

from fedse.curricula.by_signal import SignalName
from fedse.curricula.signals import SIGNALS, Tried
from fedse.types import Attempt, Outcome


def tried(successes: int, tries: int) -> Tried:
    return Tried(successes, (1.0,) * successes + (0.0,) * (tries - successes))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Of 0, 1, 2, 3, 4 successes in four tries.
        ("learnability", [0, 0.1875, 0.25, 0.1875, 0]),
        ("azr", [0, 0.75, 0.5, 0.25, 0]),
        ("agent0", [0, 0, 0.5, 0.25, 0]),
        ("dr_zero", [0, 1, 2 / 3, 1 / 3, 0]),
        ("ttcs", [0, 0.7080656, 1, 0.7080656, 0]),  # 0.75 times its fifth root, 0.9440875
        ("ssr", [-0.8, 0.55, 0.1, -0.35, -0.8]),
        ("webrl", [0, 1, 1, 1, 0]),
        ("exit_variance", [0, 0.1875, 0.25, 0.1875, 0]),
        ("eva_gap", [0, 1, 1, 1, 0]),
        ("sec_advantage", [0, 0.8660254, 1, 0.8660254, 0]),  # 2 sqrt(3/16) = sqrt(3)/2
    ],
)
def test_values(name: str, expected: list[float]) -> None:
    found = [SIGNALS[name](tried(successes, 4)) for successes in range(5)]
    assert found == pytest.approx(expected, abs=1e-7)


def test_every_signal_can_be_named_in_a_file_and_takes_a_single_try() -> None:
    assert set(get_args(SignalName)) == set(SIGNALS)
    for signal in SIGNALS.values():
        assert signal(tried(0, 1)) <= 0 and signal(tried(1, 1)) <= 0


@pytest.mark.parametrize(
    ("name", "inside", "outside"), [("agent0", (3, 8), (2, 9)), ("ttcs", (3, 7), (2, 8)), ("webrl", (1, 7), (0, 8))]
)
def test_bands_are_closed(name: str, inside: tuple[int, int], outside: tuple[int, int]) -> None:
    assert all(SIGNALS[name](tried(successes, 10)) > 0 for successes in inside)
    assert all(SIGNALS[name](tried(successes, 10)) == 0 for successes in outside)


def test_partial_credit_counts_where_a_formula_is_of_rewards() -> None:
    partly = Tried(0, (0.2, 0.6, 0.1))
    assert SIGNALS["learnability"](partly) == 0
    assert SIGNALS["eva_gap"](partly) == pytest.approx(0.5)
    assert SIGNALS["exit_variance"](partly) == pytest.approx(0.14 / 3)  # Mean 0.3; squares 0.01, 0.09, 0.04.
    assert SIGNALS["sec_advantage"](partly) == pytest.approx(0.2 / (0.14 / 3) ** 0.5)
    assert SIGNALS["sec_advantage"](Tried(0, (0.1,) * 3)) == 0


def test_errors_say_nothing_about_a_task() -> None:
    outcomes = (Outcome.SUCCESS, Outcome.ERROR, Outcome.FAILURE)
    attempts = [Attempt(1, "maze", "7", "short", number, item, 0.0, 0.5, 3) for number, item in enumerate(outcomes)]
    assert Tried.of(attempts) == Tried(1, (0.5, 0.5))
