"""What a client had learned beside what it was sent back: the same tasks, numbers only, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import BadInput
from fedse.evaluation.side_by_side import SideBySide, mean_change, side_by_side
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.mixes.feddpa import FedDpa
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, Outcome, Trajectory
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
MEASURED = {"tasks": 6, "tasks_per_round": 4, "test_tasks": 3}


def report(folder: Path, number: int) -> Any:
    return json.loads((folder / f"rounds/{number:04d}/report.json").read_text())


def without_clock_and_probes(found: Any) -> Any:
    clients = {name: {**entry, "probes": None} for name, entry in found["clients"].items()}
    return {**found, "clients": clients, "seconds": None}


def played(folder: Path, client: str, name: str) -> list[Trajectory]:
    return list(Journal(folder / "clients" / client / "episodes").read(name))


def share(trajectories: list[Trajectory], tasks: set[str]) -> float:
    own = [item for item in trajectories if item.task in tasks and item.purpose == "evaluate"]
    assert len(own) == len(tasks)
    return sum(item.outcome is Outcome.SUCCESS for item in own) / len(own)


@pytest.mark.slow
def test_both_numbers_are_of_the_same_tasks_and_the_right_adapters(table_experiment: Make, tmp_path: Path) -> None:
    folder = fedse.run(table_experiment(rounds=3, evaluation={**MEASURED, "after_learning": 3}), tmp_path).folder
    found = side_by_side(RunFolder.existing(folder))
    assert list(found) == ["east: maze", "west: maze"]
    for client in ("east", "west"):
        rounds = found[f"{client}: maze"]
        assert list(rounds) == [1, 2, 3]
        for number, pair in rounds.items():
            again = played(folder, client, f"after_learning-train-{number:04d}")
            tasks = {item.task for item in again}
            back = played(folder, client, f"{number + 1:04d}" if number < 3 else "validation-0003")
            assert len(tasks) == 3
            assert pair == SideBySide(share(again, tasks), share(back, tasks))
    assert {item.adapter for item in played(folder, "east", "after_learning-train-0002")} != {
        item.adapter for item in played(folder, "west", "after_learning-train-0002")
    }


@pytest.mark.slow
def test_nothing_else_of_a_run_changes(table_experiment: Make, tmp_path: Path) -> None:
    plain = fedse.run(table_experiment(rounds=3, evaluation=MEASURED), tmp_path / "plain")
    asked = fedse.run(table_experiment(rounds=3, evaluation={**MEASURED, "after_learning": 2}), tmp_path / "asked")
    assert asked.adapter.digest() == plain.adapter.digest()
    for number in (1, 2, 3):
        one, two = (without_clock_and_probes(report(run.folder, number)) for run in (plain, asked))
        assert one == two
    assert not side_by_side(RunFolder.existing(plain.folder))
    assert "probes" not in report(plain.folder, 1)["clients"]["east"]
    fields = {
        json.loads(line)["field"] for line in (plain.folder / "clients/east/ledger.jsonl").read_text().splitlines()
    }
    assert not any(field.startswith("probes/") for field in fields)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"method": "local_se"}, {"method": "centralized_se"}])
def test_who_gets_back_what_it_has_loses_and_wins_nothing(
    table_experiment: Make, tmp_path: Path, changes: dict[str, Any]
) -> None:
    experiment = table_experiment(rounds=3, evaluation={**MEASURED, "after_learning": 4}, **changes)
    found = side_by_side(RunFolder.existing(fedse.run(experiment, tmp_path).folder))
    pairs = [pair for rounds in found.values() for pair in rounds.values()]
    assert len(pairs) == 6 and all(pair.change == 0 for pair in pairs)
    assert any(pair.after_learning > 0 for pair in pairs)


@pytest.mark.parametrize(
    ("mix", "same"),
    [
        ("broadcast", True),
        ({"name": "personal", "rank": 2}, True),
        ({"name": "feddpa", "rank": 2}, True),
        ({"name": "blend", "share": 0.5}, True),
        # With the mean of nobody else beside it, it has less than it learned with.
        ("fedalt", False),
    ],
    ids=str,
)
def test_a_client_is_measured_with_what_it_would_play_with(
    factored: Make, tmp_path: Path, mix: Any, same: bool
) -> None:
    """Nobody else takes part in round 2, so that what comes back is what the one client had sent."""
    experiment = factored(
        mix=mix, rounds=2, evaluation={**MEASURED, "after_learning": 4}, participation={"fraction": 0.5}
    )
    folder = fedse.run(experiment, tmp_path).folder
    alone = report(folder, 2)["diagnostics"]["contributed"]
    assert len(alone) == 1
    after = {item.adapter for item in played(folder, alone[0], "after_learning-train-0002")}
    back = {item.adapter for item in played(folder, alone[0], "validation-0002")}
    assert len(after) == len(back) == 1
    assert (after == back) is same


def test_feddpa_plays_with_both_of_its_parts() -> None:
    names = ("m.lora_A.weight", "m.lora_B.weight", "m.lora_A.personal.weight", "m.lora_B.personal.weight")
    learned = Adapter({name: np.full((2, 2), 4.0, dtype=np.float32) for name in names}, {"r": 2})
    found = FedDpa("me", 0, rank=2, weight=0.25).together(learned).tensors
    assert [float(found[name][0, 0]) for name in names] == [4.0, 1.0, 4.0, 4.0]


@pytest.mark.slow
def test_a_stopped_run_has_the_same_numbers(table_experiment: Make, tmp_path: Path) -> None:
    evaluation = {**MEASURED, "after_learning": 3}
    whole = fedse.run(table_experiment(rounds=3, evaluation=evaluation), tmp_path / "whole").folder
    for rounds in (1, 3):
        halting = fedse.run(table_experiment(rounds=rounds, evaluation=evaluation), tmp_path / "halting").folder
    first, second = (side_by_side(RunFolder.existing(folder)) for folder in (whole, halting))
    assert first == second


def test_who_does_not_learn_is_not_measured_again(table_experiment: Make, tmp_path: Path) -> None:
    maze = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(
        clients={"east": maze, "guest": {**maze, "learns": False}}, evaluation={**MEASURED, "after_learning": 2}
    )
    folder = fedse.run(experiment, tmp_path).folder
    assert list(side_by_side(RunFolder.existing(folder))) == ["east: maze"]
    assert "after_learning" not in report(folder, 2)["clients"]["guest"]["probes"]


def test_show_prints_the_three_numbers(table_experiment: Make, tmp_path: Path) -> None:
    folder = fedse.run(table_experiment(evaluation={**MEASURED, "after_learning": 4}), tmp_path).folder
    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"}).output
    assert "after learning / as broadcast / difference" in " ".join(shown.split())
    pair = side_by_side(RunFolder.existing(folder))["east: maze"][1]
    assert pair.as_broadcast is not None and pair.change is not None
    assert f"{100 * pair.after_learning:.1f} / {100 * pair.as_broadcast:.1f} / {100 * pair.change:+.1f}" in shown


def test_a_round_whose_adapter_was_not_measured_has_no_difference() -> None:
    assert SideBySide(0.5, None).change is None
    assert mean_change({1: SideBySide(0.5, 0.25), 2: SideBySide(0.5, None), 3: SideBySide(0.5, 0.5)}) == -0.125
    assert mean_change({1: SideBySide(0.5, None)}) is None


@pytest.mark.parametrize(
    "measured", [{"tasks": 3}, {"tasks": 9, "tasks_per_round": 3}, {"tasks": 9, "tasks_per_round": 0}]
)
def test_tasks_that_are_not_played_both_times_are_refused(table_experiment: Make, measured: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="`after_learning` is 4, and adapters that enter a round are measured on"):
        table_experiment(evaluation={**measured, "after_learning": 4})


def test_a_single_world_can_be_evaluated(table_experiment: Make, tmp_path: Path) -> None:
    folder = fedse.run(table_experiment(evaluation={**MEASURED, "after_learning": 2}), tmp_path).folder
    with open_run(folder) as federation:
        found = federation.server.evaluate(1, "validation", "maze")
    assert found["probes"]["east"]["as_broadcast"][0]["episodes"] == 2


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
def test_flower_carries_the_numbers(table_experiment: Make, tmp_path: Path) -> None:
    evaluation = {**MEASURED, "after_learning": 3}
    here = fedse.run(table_experiment(evaluation=evaluation), tmp_path / "here").folder
    there = fedse.run(table_experiment(evaluation=evaluation, engine="flower"), tmp_path / "there").folder
    found = [side_by_side(RunFolder.existing(folder)) for folder in (here, there)]
    assert found[0] == found[1] and found[0]
