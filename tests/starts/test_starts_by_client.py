"""A start of a client's own: it begins with that, the others with the experiment's, whoever holds their worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.errors import BadInput, RunConflict
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experiments.building import build_clients
from fedse.experiments.components import build_components
from fedse.experiments.estimate import estimate
from fedse.experiments.known_before import expected_of
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.models.chat import ByteChat
from fedse.runs.folder import RunFolder
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Purpose
from fedse.worlds.maze import Maze
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
MAZE = SHORT_MAZE


def clients(**starts: Any) -> dict[str, Any]:
    return {name: {"worlds": [MAZE], **({} if start is None else {"start": start})} for name, start in starts.items()}


def begun(folder: Path, client: str) -> Counter[str]:
    """How many demonstrations of each world a buffer holds."""
    found = read_file(folder / "clients" / client / "buffer.sqlite")
    return Counter(item.world for item in found if item.purpose is Purpose.DEMONSTRATE)


def test_each_client_begins_with_its_own(table_experiment: Make, tmp_path: Path) -> None:
    starts = clients(common=None, many={"tasks": 9}, nothing="none")
    folder = fedse.run(table_experiment(clients=starts), tmp_path / "apart").folder
    assert [begun(folder, name)["maze"] for name in starts] == [3, 9, 0]
    pooled = fedse.run(table_experiment(clients=starts, pooled=True), tmp_path / "pooled").folder
    assert begun(pooled, "pooled") == {"maze": 3, "maze#2": 9}


@pytest.mark.slow
def test_a_start_that_is_the_experiments_anyway_changes_nothing(table_experiment: Make, tmp_path: Path) -> None:
    plain = fedse.run(table_experiment(clients=clients(east=None, west=None)), tmp_path / "plain")
    own = {"name": "demonstrations", "tasks": 3}
    given = fedse.run(table_experiment(clients=clients(east=own, west=None)), tmp_path / "given")
    other = fedse.run(table_experiment(clients=clients(east=None, west=own), start="none"), tmp_path / "other")
    assert plain.adapter.digest() == given.adapter.digest() != other.adapter.digest()
    assert begun(other.folder, "west") == {"maze": 3} and not begun(other.folder, "east")


def test_estimates_and_bounds_know_the_starts_of_all(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(clients=clients(few=None, many={"tasks": 20}, nothing="none"))
    assert expected_of(experiment).started == 20
    parts = build_components(experiment)
    sizes = [parts.start.size(name, "maze", Maze(mode="original")) for name in experiment.clients]  # type: ignore[attr-defined]
    assert sizes == [3, 20, 0]
    built = build_clients(experiment, parts, RunFolder(tmp_path))
    adapter = parts.model.initial_adapter(0)
    assert estimate(built, parts.model, parts.policy, parts.learner, adapter, 1).episodes > 0
    assert expected_of(table_experiment(clients=clients(east="none"), start="none")).started == 0


def test_a_file_of_one_client_is_checked_and_may_not_change(table_experiment: Make, tmp_path: Path) -> None:
    file = tmp_path / "shown.json"
    with pytest.raises(BadInput, match=r"cannot read .*shown\.json"):
        fedse.run(table_experiment(clients=clients(east=str(file), west=None)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    shown = Demonstrations(6).trajectories("site", "maze", Maze(mode="original"), ByteChat(), 0)
    export(shown[:4], file)
    experiment = table_experiment(clients=clients(east=str(file), west=None))
    with prepare(experiment, tmp_path / "runs"):
        pass
    export(shown, file)
    with pytest.raises(RunConflict):
        fedse.run(experiment, tmp_path / "runs")
    export(shown[:4], file)
    folder = fedse.run(experiment, tmp_path / "runs").folder
    assert (begun(folder, "east")["maze"], begun(folder, "west")["maze"]) == (4, 3)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["clients.maze.start.taks=3"], "clients.maze.start.taks: unknown key; did you mean 'tasks'?"),
        (["clients.maze.start=nonee"], "clients.maze.start: unknown start 'nonee': did you mean 'none'?"),
        (["clients.maze.start.tasks=0"], "clients.maze.start.tasks: input should be greater than or equal to 1"),
        (["clients.maze.start=none", "method=local"], "`start: none` gives client 'maze' nothing"),
        (["clients.maze.start=none", "clients.maze.learns=false"], "begins with nothing: leave its `start` out"),
    ],
)
def test_bad_starts_are_refused_as_the_experiments_are(tiny_file: Path, settings: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        fedse.load_experiment(tiny_file, settings)
    assert sentence in str(raised.value), raised.value
    assert fedse.load_experiment(tiny_file, ["clients.maze.start=none", "method=centralized"])
