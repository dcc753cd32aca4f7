"""`benchmarks/claims.py`: what a modifier claims, beside its control, from the folders of runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fedse
from fedse.evaluation.comparison import compare
from fedse.experiments.measuring import read_runs
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.types import Outcome


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
    for journal in tmp_path.rglob("episodes/test-*"):
        journal.unlink()
    left = program.gathered(folders)
    again = program.against(left["few"], {"many": left["many"]})["many"]
    for kept in ("difference", "by_seed", "t_interval"):
        assert again["success"][kept] == told["success"][kept]
    assert again["success"]["tasks"] == "counted" and "tasks" not in told["success"]
    counted = program.described(left["many"])
    assert counted["success"] == described["success"] and counted["pass_at_k"] == described["pass_at_k"]
    for name in ("tokens", "invalid_actions"):
        assert counted["numbers"]["1"][name] == pytest.approx(described["numbers"]["1"][name], rel=1e-3)


@pytest.mark.slow
def test_a_run_is_compared_with_the_one_whose_adapter_it_began_with(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    start = {"name": "demonstrations", "tasks": 2}
    fitted, other = (
        fedse.run(table_experiment(name=f"{name}_1", seed=seed, rounds=1, start=start), tmp_path).folder
        for name, seed in (("fitted", 1), ("other", 2))
    )
    longer = fedse.run(
        table_experiment(name="longer_s1", seed=1, rounds=1, start_adapter=str(fitted / "rounds/0001/adapter")),
        tmp_path,
    ).folder
    runs, beginnings = program.gathered([longer]), [program.Run(folder) for folder in (other, fitted)]
    told = program.against_beginning(runs, beginnings)["longer"]
    pair = compare(read_runs([longer, fitted], "test")[1], all_pairs=True).pairs[0]
    assert told["difference"] == pytest.approx(100 * abs(pair.found.macro), abs=0.06) != 0
    assert told["p_of_each"]["1"] == {"p": pytest.approx(pair.found.p, rel=0.05), "test": "McNemar"}
    assert program.against_beginning(runs, beginnings[:1]) == {}
    next(fitted.rglob("episodes/test-*")).unlink()
    assert program.against_beginning(runs, [program.Run(fitted)])["longer"]["p_of_each"]["1"]["test"] == "counts"


def test_of_one_stratum_the_test_of_counts_is_that_of_a_table_of_four(benchmarks: Any) -> None:
    test = benchmarks("mantel_haenszel").mantel_haenszel
    table = np.array([[60, 140], [37, 163]])
    ours, theirs = ((row[0], row.sum()) for row in table)
    # Mantel and Haenszel divide by N - 1 where Pearson divides by N.
    scaled = stats.chi2_contingency(table, correction=False).statistic * (table.sum() - 1) / table.sum()
    assert test([ours], [theirs]) == pytest.approx(stats.chi2.sf(scaled, 1))
    assert test([ours, theirs], [theirs, ours]) == pytest.approx(1.0), "what one world gains the other loses"


def test_winners_and_losers_are_counted_by_lesson(program: Any) -> None:
    told = {
        "a": {"winner_log_ratio": 0.5, "loser_log_ratio": -1.0},
        "b": {"winner_log_ratio": -0.5, "loser_log_ratio": -2.0},
        "c": {},
    }
    run = SimpleNamespace(rounds=[{"clients": {site: {"metrics": metrics} for site, metrics in told.items()}}])
    found = program.moved([run])
    assert found == {"lessons": 2, "better_up": 1, "worse_down": 2, "both": 1, "better": 0.0, "worse": -1.5}


def test_tasks_of_two_worlds_are_two_even_if_they_are_called_alike(program: Any) -> None:
    def run(*won: bool) -> Any:
        found = object.__new__(program.Run)
        outcomes = [Outcome.SUCCESS if item else Outcome.FAILURE for item in won]
        worlds = zip(("maze", "wordle"), outcomes, strict=True)
        found.greedy = {
            world: [SimpleNamespace(world=world, task="test-0", outcome=outcome)] for world, outcome in worlds
        }
        return found

    assert program._p_of_one(run(True, True), run(False, False))["p"] == 0.5, "as one task it would be 1"
