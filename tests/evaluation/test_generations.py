"""Percentiles over kinds of tasks: by hand, of a run, and as a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.cli.rounds import chosen_round
from fedse.errors import BadInput
from fedse.evaluation.curves import curves, macro
from fedse.evaluation.generations import Generation, generations, measured, on_the_same_tasks, successes
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Trajectory

Make = Callable[..., Experiment]
EASY, HARD, HARDER = ("c", "w", "easy"), ("c", "w", "hard"), ("c", "w", "harder")


def episode(category: str, outcome: Outcome, purpose: Purpose = Purpose.EVALUATE, task: str = "t") -> Trajectory:
    return Trajectory("c", "w", task, purpose, 1, 0, "", (), "", outcome, 0.0, (), (), category=category)


def test_what_succeeded_is_without_errors_and_explorations() -> None:
    played = [
        episode("easy", Outcome.SUCCESS),
        episode("easy", Outcome.ERROR, task="u"),
        episode("hard", Outcome.SUCCESS),
        episode("hard", Outcome.FAILURE, task="u"),
        episode("hard", Outcome.SUCCESS, Purpose.EXPLORE, task="v"),
    ]
    assert successes(played) == {EASY: {"t": True}, HARD: {"t": True, "u": False}}


def test_all_adapters_of_a_run_are_told_apart_on_the_tasks_that_all_of_them_played() -> None:
    many, few = {EASY: {"a": True, "b": False, "c": False, "d": False}}, {EASY: {"a": True, "b": False}}
    assert on_the_same_tasks("r", {0: many, 1: few, 2: many}) == {number: {EASY: 0.5} for number in range(3)}
    assert on_the_same_tasks("r", {0: many, 1: many}) == {number: {EASY: 0.25} for number in range(2)}
    assert on_the_same_tasks("r", {0: many | {HARD: {"e": True}}, 1: few})[1] == {EASY: 0.5}, "refused by `generations`"
    with pytest.raises(BadInput, match="no task of the category 'easy' of 'w' at 'c' was measured with all adapters"):
        on_the_same_tasks("r", {0: few, 1: {EASY: {"c": True}}})


def test_scores_are_shares_of_the_best_and_percentiles_run_over_kinds() -> None:
    found = generations(
        {
            "one": {
                0: {EASY: 0.4, HARD: 0.1, HARDER: 0.0},
                1: {EASY: 0.8, HARD: 0.1, HARDER: 0.0},
                2: {EASY: 0.7, HARD: 0.2, HARDER: 0.0},
            },
            "other": {4: {EASY: 0.2, HARD: 0.4, HARDER: 0.1}},
        }
    )
    # The best of each kind are 0.8, 0.4 and 0.1. Of three sorted numbers a, b, c the 10th percentile is a + 0.2 (b - a).
    scores = {0: [0.0, 0.25, 0.5], 1: [0.0, 0.25, 1.0], 2: [0.0, 0.5, 0.875], 4: [0.25, 1.0, 1.0]}
    assert [item.round for item in found] == list(scores)
    for item in found:
        low, middle, _ = scores[item.round]
        assert item.percentiles == pytest.approx((low + 0.2 * (middle - low), low + 0.4 * (middle - low), middle))
    assert [item.participation for item in found] == pytest.approx([2 / 3, 2 / 3, 2 / 3, 1])
    assert [item.verdict for item in found] == ["", "the same", "better", ""], "a run is compared with itself"


def test_who_gains_here_and_loses_there_is_neither_better_nor_worse() -> None:
    before = Generation("r", 0, 1.0, (0.2, 0.3, 0.5))
    assert Generation("r", 1, 1.0, (0.1, 0.3, 0.9)).beside(before) == "neither"
    assert Generation("r", 1, 0.9, (0.2, 0.3, 0.5)).beside(before) == "worse"


def test_a_kind_that_was_not_measured_is_refused() -> None:
    with pytest.raises(BadInput, match="after round 1 no task of the category 'hard' of 'w' at 'c' was measured"):
        generations({"r": {0: {EASY: 0.1, HARD: 0.2}, 1: {EASY: 0.3}}})


def test_an_adapter_that_stayed_the_same_is_the_same(table_experiment: Make, tmp_path: Path) -> None:
    """Measured on more tasks in the beginning and in the end than on the way: it had become worse, and then better."""
    learns_nothing = table_experiment(
        clients={"east": {"worlds": [{"name": "maze", "size": 4, "train_tasks": 30, "observation_length": "brief"}]}},
        start="none",
        filter={"name": "threshold", "score": 99},
        evaluation={"tasks": 40, "tasks_per_round": 12, "test_tasks": 0},
    )
    view = RunView.existing(fedse.run(learns_nothing, tmp_path).folder)
    assert view.digest_of(0) == view.digest_of(2)
    shares = {row["adapter"]: (row["episodes"], row["success"]) for row in curves(view)["east: maze"]}
    assert [episodes for episodes, _ in shares.values()] == [40, 12, 40] and shares[0][1] != shares[1][1]
    assert [item.verdict for item in generations({"r": measured(view)})] == ["", "the same", "the same"]


@pytest.mark.slow
def test_where_a_client_took_no_part_a_refusal_says_what_helps(factored: Make, tmp_path: Path) -> None:
    """In each round one of two clients measures; `--round best` had chosen the last round without a word."""
    half = factored(rounds=3, participation={"fraction": 0.5}, evaluation={"tasks": 20, "test_tasks": 0})
    run = fedse.run(half, tmp_path).folder
    for command in (["generations", str(run)], ["export", str(run), str(tmp_path / "out"), "--round", "best"]):
        refused = CliRunner().invoke(app, command, env={"COLUMNS": "2000"})
        assert refused.exit_code == 2 and "--split validation`" in refused.output
        assert "tasks_per_round" not in refused.output, "more tasks would not help"
    assert chosen_round(RunView.existing(run), "best", "east") in (0, 1, 2, 3), "of one client all of its rounds count"
    with open_run(run) as federation:
        for number in range(3):
            federation.server.evaluate(number, "validation")
    view = RunView.existing(run)
    means = macro(curves(view))
    assert list(means) == [0, 1, 2, 3]
    assert chosen_round(view, "best") == max(means, key=lambda number: (means[number], -number))
    assert [item.round for item in generations({"r": measured(view)})] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_run_has_as_many_generations_as_adapters(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    run = fedse.run(table_experiment(evaluation={"tasks": 12, "test_tasks": 0}), tmp_path).folder
    view = RunView.existing(run)
    found = measured(view)
    assert sorted(found) == [0, 1, 2]
    for rows in curves(view).values():
        for row in rows:
            own = [share for (client, *_), share in found[row["adapter"]].items() if client == row["client"]]
            assert min(own) <= row["success"] <= max(own), "the whole is between its parts"
    told = CliRunner().invoke(app, ["generations", str(run), "--json"], catch_exceptions=False)
    assert [item["round"] for item in json.loads(told.stdout)] == [0, 1, 2]
    shown = CliRunner().invoke(app, ["generations", str(run)], catch_exceptions=False)
    assert "participation" in shown.stdout and "50th" in shown.stdout
    for journal in run.glob("clients/*/episodes/*"):
        journal.unlink()
    lost = CliRunner().invoke(app, ["generations", str(run)])
    assert lost.exit_code == 2
