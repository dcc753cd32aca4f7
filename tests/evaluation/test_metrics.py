"""Rates with their intervals, from counts; errors are never part of a rate."""

from __future__ import annotations

import json
from math import sqrt

import pytest

from fedse.evaluation.metrics import row, score, summarise, wilson
from fedse.types import Outcome, Purpose, Step, Trajectory, WorldScore


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_equals_the_published_table(successes: int, episodes: int, low: float, high: float) -> None:
    found = wilson(successes, episodes)
    assert found == (pytest.approx(low, abs=5.1e-5), pytest.approx(high, abs=5.1e-5))


@pytest.mark.parametrize("episodes", [1, 2, 7, 25, 200, 10_000])
def test_each_bound_solves_the_score_equation_and_surrounds_the_share(episodes: int) -> None:
    for successes in sorted({0, 1, episodes // 3, episodes // 2, episodes - 1, episodes}):
        share = successes / episodes
        low, high = wilson(successes, episodes)
        assert 0 <= low <= share <= high <= 1
        for bound in (low, high):
            # Definition: the share lies z standard errors (under the bound) away from the bound.
            distance = 1.959963984540054 * sqrt(bound * (1 - bound) / episodes)
            assert abs(share - bound) == pytest.approx(distance, abs=1e-7)


def test_the_interval_is_the_same_seen_from_failures() -> None:
    low, high = wilson(3, 40)
    mirrored = wilson(37, 40)
    assert mirrored == (pytest.approx(1 - high), pytest.approx(1 - low))


def test_without_episodes_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def _played(outcome: Outcome, steps: int = 2, valid: bool = True, error: str = "") -> Trajectory:
    step = Step("o", "r", "t", "a", valid)
    return Trajectory(
        "c",
        "w",
        "t",
        Purpose.EVALUATE,
        1,
        0,
        "",
        (step,) * steps,
        "",
        outcome,
        0.0,
        (1, 2, 3),
        (False, True, True),
        error,
    )


def test_errors_are_counted_by_kind_and_nowhere_else() -> None:
    played = [
        _played(Outcome.SUCCESS),
        _played(Outcome.FAILURE, steps=4, valid=False),
        _played(Outcome.ERROR, steps=50, valid=False, error="KeyError"),
        _played(Outcome.ERROR, steps=50, error="KeyError"),
        _played(Outcome.ERROR, steps=50, error="OSError"),
    ]
    found = score("w", "validation", played, 0.1, 0.9)
    assert found == WorldScore("w", "validation", 2, 1, 6, 4, 4, {"KeyError": 2, "OSError": 1}, 0.1, 0.9)
    shown = row("c", found)
    assert (shown["success"], shown["steps"], shown["tokens"]) == (0.5, 3, 2)
    assert shown["invalid"] == pytest.approx(4 / 6)
    assert shown["interval"] == wilson(1, 2)


def _score(world: str, episodes: int, successes: int, errors: dict[str, int] | None = None) -> WorldScore:
    return WorldScore(world, "test", episodes, successes, 10 * episodes, 20 * episodes, 0, errors or {}, 0.0, 1.0)


def test_macro_is_over_rows_and_micro_over_episodes() -> None:
    found = summarise([("a", _score("maze", 10, 10)), ("b", _score("maze", 90, 0))])
    assert found["macro"] == 0.5
    assert found["micro"] == 0.1
    assert found["micro_interval"] == wilson(9, 90), "the ten tasks of one are among the ninety of the other"
    assert found["episodes"] == 100
    assert [(entry["client"], entry["success"]) for entry in found["worlds"]] == [("a", 1.0), ("b", 0.0)]


def test_a_world_with_nothing_but_errors_has_no_rate_and_no_part_in_an_average() -> None:
    broken = score("w", "test", [_played(Outcome.ERROR, error="KeyError")] * 5, 0.0, 1.0)
    found = summarise([("a", _score("maze", 10, 5)), ("b", broken)])
    assert (found["macro"], found["micro"], found["episodes"]) == (0.5, 0.5, 10)
    lost = found["worlds"][1]
    assert (lost["success"], lost["steps"], lost["tokens"], lost["invalid"]) == (None, None, None, None)
    assert lost["errors"] == {"KeyError": 5}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("scores", [[], [("a", _score("maze", 0, 0))]])
def test_without_episodes_there_are_no_averages(scores: list[tuple[str, WorldScore]]) -> None:
    found = summarise(scores)
    assert (found["macro"], found["micro"], found["episodes"]) == (None, None, 0)
    assert found["micro_interval"] == (0.0, 1.0)
