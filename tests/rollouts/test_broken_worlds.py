"""A world of somebody's own breaks in every way it can: that is an error of this world, under its client's name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import BadInput, CannotImport, TooManyErrors
from fedse.experiments.options import Experiment
from fedse.plugins import resolve
from fedse.types import Split, Task
from fedse.worlds.check import check
from fedse.worlds.maze import Maze
from fedse.worlds.world import Turn, World

SECRET = "patient 4711 has a rare disease"


class Sound(Maze):
    """The maze of the paper, whatever the options are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "mode": "original"})


class SaysInt(Sound):
    def begin(self, task: str) -> str:
        return 7  # type: ignore[return-value]


class SaysNothing(Sound):
    def act(self, action: str) -> Turn:
        return Turn(None)  # type: ignore[arg-type]


class SaysBytes(Sound):
    def act(self, action: str) -> Turn:
        return Turn(b"a wall")  # type: ignore[arg-type]


class SaysHalfACharacter(Sound):
    def begin(self, task: str) -> str:
        return "a \ud800 wall"


class ScoresNan(Sound):
    def act(self, action: str) -> Turn:
        return Turn("done", done=True, success=True, score=float("nan"))


class RaisesASentence(Sound):
    def begin(self, task: str) -> str:
        raise type(SECRET, (Exception,), {})("\ud800")


class RaisesALongName(Sound):
    def begin(self, task: str) -> str:
        raise type("E" * 65, (Exception,), {})


class Leaves(Sound):
    def begin(self, task: str) -> str:
        sys.exit(3)


class RulesRaise(Sound):
    @property
    def rules(self) -> str:
        raise OSError("no rules")


class TasksRaise(Sound):
    def tasks(self, split: Split) -> Sequence[Task]:
        raise LookupError("no list of tasks")


class TasksAreWords(Sound):
    def tasks(self, split: Split) -> Sequence[Task]:
        return ["one", "two"]  # type: ignore[list-item]


class TestTasksRaise(Sound):
    __test__ = False

    def tasks(self, split: Split) -> Sequence[Task]:
        if split == "test":
            raise LookupError("no list of tasks")
        return super().tasks(split)


IN_EPISODES = {
    SaysInt: "WorldBroke",
    SaysNothing: "WorldBroke",
    SaysBytes: "WorldBroke",
    SaysHalfACharacter: "WorldBroke",
    ScoresNan: "WorldBroke",
    RaisesASentence: "other",
    RaisesALongName: "other",
    Leaves: "other",
    RulesRaise: "OSError",
}


def beside(make: Callable[..., Experiment], world: type[World], **changes: Any) -> Experiment:
    worlds = {"east": {"worlds": [Sound]}, "west": {"worlds": [world]}}
    return make(clients=worlds, start="none", rounds=1, **changes)


@pytest.mark.parametrize("world", IN_EPISODES, ids=lambda world: world.__name__)
def test_what_breaks_in_an_episode_is_counted_and_the_others_go_on(
    world: type[World], table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    found = fedse.run(beside(table_experiment, world, limits={"on_errors": "leave_out"}), tmp_path)
    report = json.loads((found.folder / "rounds/0001/report.json").read_text())
    assert report["diagnostics"]["contributed"] == ["east"] and report["absent"] == {"west": "LeftOut"}
    left_out = [
        line["message"]
        for line in map(json.loads, (found.folder / "events.jsonl").read_text().splitlines())
        if line.get("kind") == "left_out" and line["client"] == "west"
    ]
    assert f"({IN_EPISODES[world]})" in left_out[0]
    assert SECRET not in left_out[0]
    journal = (found.folder / "clients/west/episodes/0001.jsonl").read_text()
    assert {json.loads(line)["outcome"] for line in journal.splitlines()} == {"error"}


def test_too_many_errors_stop_the_run_under_the_name_of_the_client(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(TooManyErrors, match=r"client 'west' in round 1 .*WorldBroke"):
        fedse.run(beside(table_experiment, ScoresNan), tmp_path)


@pytest.mark.parametrize("world", [TasksRaise, TasksAreWords])
def test_a_world_that_cannot_list_its_tasks_is_its_clients_trouble(
    world: type[World], table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(TooManyErrors, match=r"client 'west' could not do train-0001"):
        fedse.run(beside(table_experiment, world), tmp_path)
    found = fedse.run(beside(table_experiment, world, name="on", limits={"on_errors": "leave_out"}), tmp_path)
    report = json.loads((found.folder / "rounds/0001/report.json").read_text())
    assert report["diagnostics"]["contributed"] == ["east"] and report["absent"] == {"west": "WorldBroke"}
    told = [json.loads(line) for line in (found.folder / "events.jsonl").read_text().splitlines()]
    messages = [item["message"] for item in told if item.get("kind") == "world_broke"]
    assert messages and all(item.startswith("client 'west': the world 'maze' broke in tasks(") for item in messages)


def test_a_split_that_breaks_after_the_last_round_leaves_the_others_measured(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    found = fedse.run(beside(table_experiment, TestTasksRaise, limits={"on_errors": "leave_out"}), tmp_path)
    assert found.test is not None and [row["client"] for row in found.test["worlds"]] == ["east"]


def test_the_experts_nan_is_no_demonstration(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no demonstrations"):
        fedse.run(
            table_experiment(clients={"west": {"worlds": [ScoresNan]}}, limits={"max_error_share": 1.0}), tmp_path
        )


def test_an_estimate_is_left_out_where_a_world_breaks(tmp_path: Path) -> None:
    for world, code in ((SaysInt, 1), (TasksRaise, 1), (Sound, 0)):
        file = tmp_path / "e.yaml"
        file.write_text(
            f"name: {world.__name__}\nrounds: 1\nmodel: table\npolicy: table\nlearner: table\nstart: none\n"
            f"clients: {{west: {{worlds: ['{__name__}:{world.__name__}']}}}}\n"
            "exploration: {tasks: 2}\nevaluation: {tasks: 2, test_tasks: 0}\n"
        )
        done = CliRunner().invoke(app, ["run", str(file), "--runs", str(tmp_path / "runs")])
        assert done.exit_code == code, done.output
        assert ("No estimate: the world 'maze' broke in a trial at client 'west'" in done.output) == (code == 1)
        assert "fedse: " in done.output or not code
        assert done.exception is None or isinstance(done.exception, SystemExit)


def test_a_module_that_raises_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, content in (
        ("raises_at_import", "raise RuntimeError('no licence')"),
        ("leaves_at_import", "import sys; sys.exit(1)"),
        ("lacks_a_library", "import no_such_library_anywhere"),
        ("is_no_python", "class ("),
    ):
        (tmp_path / f"{name}.py").write_text(content)
        with pytest.raises(CannotImport, match=f"world '{name}:Mine': its module fails when it is imported"):
            resolve("world", f"{name}:Mine")
    (tmp_path / "e.yaml").write_text("name: e\nmodel: table\nclients: {west: {worlds: ['raises_at_import:Mine']}}\n")
    with pytest.raises(BadInput, match=r"line 3: clients.west.worlds.0: .*no licence"):
        fedse.load_experiment(tmp_path / "e.yaml")


class CannotBeMade(Sound):
    def __init__(self, **options: Any) -> None:
        raise ConnectionError("no server")


def test_a_world_that_cannot_be_made_is_named_before_anything_is_written(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=r"clients\.west\.worlds\.0: .*could not be made \(ConnectionError: no server\)"):
        fedse.run(beside(table_experiment, CannotBeMade), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


class Unfinished(World):
    name, version, turn_limit, rules = "unfinished", 1, 3, "Action: x"  # type: ignore[assignment]

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-1")]


def test_the_checker_names_the_method_that_is_missing() -> None:
    [finding] = check(Unfinished, only=["same task, same episode"])
    assert not finding.passed
    assert finding.detail == "NotImplementedError: Unfinished has no `begin`, which every world needs"
