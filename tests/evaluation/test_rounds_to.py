"""`benchmarks/rounds_to.py`: where curves reach a level, and by how much earlier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.evaluation.curves import curves, macro
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView


@pytest.fixture
def program(benchmarks: Any) -> Any:
    return benchmarks("rounds_to")


def test_a_level_is_reached_between_two_rounds_and_the_first_time_counts(program: Any) -> None:
    assert program.crossing({0: 0.1, 1: 0.3, 2: 0.2, 3: 0.6}, 0.25) == pytest.approx(0.75)
    assert program.crossing({0: 0.1, 1: 0.3, 2: 0.2, 3: 0.6}, 0.5) == pytest.approx(2.75)
    assert program.crossing({0: 0.5, 1: 0.1}, 0.5) == 0
    assert program.crossing({0: 0.1, 1: 0.3}, 0.5) is None


def test_a_share_has_an_interval_from_pairs_drawn_again(program: Any) -> None:
    share, (low, high) = program.fewer([2.0, 4.0], [4.0, 4.0])
    assert share == pytest.approx(0.25) and (low, high) == pytest.approx((0.0, 0.5), abs=0.04)
    assert program.fewer([3.0] * 3, [4.0] * 3) == (0.25, (0.25, 0.25))


@pytest.mark.slow
def test_runs_are_compared_with_uniform_by_seed(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    keys: dict[str, Any] = {"rounds": 1, "evaluation": {"tasks": 12, "test_tasks": 0}}
    found = []
    for name in ("uniform", "sec"):
        run = fedse.run(table_experiment(**keys, curriculum=name, seed=3), tmp_path / name).folder
        never, always = program.measured(run, 1.1), program.measured(run, 0.0)
        assert (never.rounds, never.reached) == (2, False) and (always.rounds, always.tokens) == (0, 0)
        assert never.tokens > 0 and never.last == macro(curves(RunView.existing(run)))[1]
        found.append(never)
    told = program.compared(found)
    (other,) = told.keys() - {"uniform"}
    assert told[other]["fewer_rounds"]["share"] == 0 and told["uniform"]["rounds"] == [">2.0"]
    assert told[other]["fewer_rounds"]["seeds"] == [3]
