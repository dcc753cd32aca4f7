"""`benchmarks/claims.py`: what a modifier claims, beside its control, from the folders of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedse
from fedse.evaluation.comparison import compare
from fedse.experiments.measuring import read_runs
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView


@pytest.fixture
def program(benchmarks: Any) -> Any:
    return benchmarks("claims")


@pytest.mark.slow
def test_differences_are_those_of_fedse_compare_and_pass_at_k_that_of_the_probe(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    folders = [
        fedse.run(
            table_experiment(
                name=f"{name}_s{seed}",
                seed=seed,
                rounds=1,
                start={"name": "demonstrations", "tasks": shown},
                probes=[{"name": "pass_at_k", "attempts": 3, "tasks": 4, "split": "test", "temperature": 20.0}],
            ),
            tmp_path,
        ).folder
        for name, shown in (("few", 1), ("many", 6))
        for seed in (1, 2)
    ]
    runs = program.gathered(folders)
    told = program.against(runs["few"], {"many": runs["many"]})["many"]
    pair = compare(read_runs(folders, "test")[1], against="few_s1").pairs[0]
    # The same two, the other way round.
    assert told["success"]["difference"] == pytest.approx(-100 * pair.found.macro, abs=0.06) != 0
    assert told["success"]["p_holm"] == pytest.approx(pair.p, rel=0.05)
    described = program.described(runs["many"])
    evaluation: Any = RunView.existing(folders[2]).evaluation("test", 1)
    last = evaluation["probes"]["east"]["pass_at_k"][0]
    assert described["pass_at_k"]["1"]["east"] == pytest.approx(100 * last["success"], abs=0.06)
    assert "| `many` |" in program.table(
        {"control": "few", "runs": {"many": described}, "against_control": {"many": told}}
    )


def test_winners_and_losers_are_counted_by_lesson(program: Any) -> None:
    told = {
        "a": {"winner_log_ratio": 0.5, "loser_log_ratio": -1.0},
        "b": {"winner_log_ratio": -0.5, "loser_log_ratio": -2.0},
        "c": {},
    }
    run = SimpleNamespace(rounds=[{"clients": {site: {"metrics": metrics} for site, metrics in told.items()}}])
    found = program.moved([run])
    assert found == {"lessons": 2, "better_up": 1, "worse_down": 2, "both": 1, "better": 0.0, "worse": -1.5}
