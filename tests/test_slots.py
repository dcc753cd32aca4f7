"""A slot is declared once: duties follow from its protocol, terms from the fields; plug-ins come from anywhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import fedse
from fedse import protocols
from fedse.curricula.uniform import Uniform
from fedse.engines.local import LocalEngine
from fedse.errors import BadInput, RunConflict, UnknownName
from fedse.events import Event, RoundStarted, Warned
from fedse.experiments.client_options import ClientOptions
from fedse.experiments.options import Experiment
from fedse.experiments.running import stored_experiment
from fedse.plugins import Choice, ChoiceOf, duties, known, resolve
from fedse.plugins.shipped import KNOWN
from fedse.probes.drift import Drift
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import Trackers
from fedse.worlds.maze import Maze
from fedse_command import command

Make = Callable[..., Experiment]
SOURCE = Path(fedse.__file__).parent


def test_duties_are_the_methods_of_the_protocol() -> None:
    assert duties("world") == ["reset", "step", "tasks", "expert"]
    assert duties("policy") == ["load", "open", "extend", "ready", "close"]
    assert duties("probe") == ["plan", "score"]
    for kind in KNOWN:
        assert hasattr(protocols, kind.capitalize()) and duties(kind)
    with pytest.raises(UnknownName, match="the class has no method 'plan', which every curriculum needs"):
        resolve("curriculum", "fedse.worlds.maze:Maze")


def test_every_kind_of_plug_in_is_a_field_of_the_experiment() -> None:
    fields = {**Experiment.model_fields, **ClientOptions.model_fields}
    kinds = {
        marker.kind
        for field in fields.values()
        for marker in [*field.metadata, *(item for inner in get_args(field.annotation) for item in get_args(inner))]
        if isinstance(marker, ChoiceOf)
    }
    assert kinds == KNOWN.keys()


def test_hub_and_site_agree_on_every_key_that_is_not_said_to_be_the_servers(table_experiment: Make) -> None:
    plain = table_experiment()
    for changes in (
        {"exploration": {"tasks": 11}},
        {"curriculum": Uniform},
        {"judge": "fedse.judges.world:WorldJudge"},
        {"probes": ["fedse.probes.drift:Drift"]},
        {"sending": {"precision": "int8"}},
        {"buffer": {"max_trajectories": 7}},
        {"seed": 1},
    ):
        assert table_experiment(**changes).terms != plain.terms, changes
    for changes in ({"limits": {"max_error_share": 0.5}}, {"checks": {"max_norm": 3.0}}, {"rounds": 9}):
        assert table_experiment(**changes).terms == plain.terms, changes
    assert Experiment.server_only < Experiment.model_fields.keys()


def test_no_code_asks_for_a_plug_in_by_its_name() -> None:
    """Capabilities instead of names: an engine or a start of one's own is as good as fedse's."""
    slots = "|".join(KNOWN)
    asked = re.compile(rf"\b({slots})\.name\s*(==|!=|in\b)")
    found = [f"{path.name}: {line}" for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines()
             if asked.search(line)]  # fmt: skip
    assert found == []


class Inline(Maze):
    turn_limit = 9


def test_a_class_stands_where_a_name_stands(table_experiment: Make, tmp_path: Path) -> None:
    class Nearest(Uniform):
        def chosen(self, *given: Any) -> Any:
            return sorted(super().chosen(*given), key=lambda task: task.id)

    experiment = table_experiment(
        curriculum=Nearest, clients={"here": {"worlds": [{"name": Inline, "mode": "original"}]}}
    )
    result = fedse.run(experiment, tmp_path)
    assert "Nearest" in (result.folder / "experiment.yaml").read_text()
    named = table_experiment(clients={"here": {"worlds": [{"name": f"{__name__}:Inline", "mode": "original"}]}})
    assert experiment.clients == named.clients
    # Another process cannot know what a function held, and says so; results can be looked at all the same.
    shown = command("show", result.folder)
    assert shown.returncode == 0, shown.stderr
    again = command("eval", result.folder, folder=tmp_path)
    assert again.returncode == 2 and "Nearest" in again.stderr


def test_two_classes_of_one_name_stay_two(table_experiment: Make, tmp_path: Path) -> None:
    def made(turns: int) -> Any:
        class Many(Uniform):
            calls = turns

        return Many

    first, second = (table_experiment(curriculum=made(number)) for number in (1, 2))
    assert [resolve("curriculum", item.curriculum.name).calls for item in (first, second)] == [1, 2]
    assert first.curriculum != second.curriculum


def test_a_class_that_cannot_be_imported_is_refused_where_other_processes_need_it(
    table_experiment: Make, tmp_path: Path
) -> None:
    class Local(Uniform):
        pass

    for engine in ({"name": "local", "processes": 1}, {"name": "flower"}):
        with pytest.raises(BadInput, match="was given as a class that cannot be imported"):
            fedse.run(table_experiment(curriculum=Local, engine=engine), tmp_path)
    assert not (tmp_path / "table").exists()


def test_probes_have_names_of_their_own(table_experiment: Make) -> None:
    class Local(Drift):
        pass

    assert list(table_experiment(probes=[Local, Local]).labelled_probes) == ["Local", "Local_2"]


def test_installed_packages_add_plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guest_worlds.py").write_text(
        "from fedse import World\nfrom fedse.worlds.maze import Maze\n\nclass Guest(Maze):\n    name = 'guest'\n"
    )
    info = tmp_path / "guest_worlds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-worlds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedse.plugins]\nworld.guest = guest_worlds:Guest\nworld.maze = x:Y\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    known.cache_clear()
    try:
        assert known("world")["guest"] == "guest_worlds:Guest"
        assert known("world")["maze"] == KNOWN["world"]["maze"], "fedse's own names cannot be taken over"
        assert resolve("world", "guest").__name__ == "Guest"
    finally:
        known.cache_clear()


@pytest.mark.slow
def test_results_can_be_looked_at_without_the_classes_that_made_them(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lost_plugin.py").write_text(
        "from fedse.aggregators.mean import Mean\nfrom fedse.curricula.uniform import Uniform\n"
        "from fedse.worlds.maze import Maze\n\n"
        "class Lost(Uniform):\n    pass\n\nclass LostMaze(Maze):\n    pass\n\nclass LostMean(Mean):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    site = {"worlds": [{"name": "lost_plugin:LostMaze", "mode": "original"}]}
    runs = [
        fedse.run(
            table_experiment(
                name=f"s{seed}",
                seed=seed,
                clients={"a": site, "b": site},
                curriculum="lost_plugin:Lost",
                aggregator="lost_plugin:LostMean",
            ),
            tmp_path,
        ).folder
        for seed in (0, 1)
    ]
    (tmp_path / "lost_plugin.py").unlink()
    for line in (
        ["show", runs[0]],
        ["compare", *runs, "--json"],
        ["runs", "--runs", tmp_path],
        ["export", runs[0], "out"],
    ):
        done = command(*line, folder=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    part = stored_experiment(RunFolder.existing(runs[0])).curriculum
    assert isinstance(part, Choice) and part.foreign


def test_a_changed_world_does_not_return_the_old_runs_results(
    table_experiment: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = table_experiment()
    folder = fedse.run(experiment, tmp_path).folder
    assert json.loads((folder / "manifest.json").read_text())["worlds"].keys() == {"east/maze", "west/maze"}
    fedse.run(experiment, tmp_path)
    monkeypatch.setattr(Maze, "version", Maze.version + 1)
    with pytest.raises(RunConflict, match=r"another state of the world east/maze \(maze version \d+, rules \w+; here"):
        fedse.run(experiment, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(Maze, "rules", "Be quick.")
    with pytest.raises(RunConflict, match="another state of the world east/maze"):
        fedse.run(table_experiment(rounds=3), tmp_path)


class Failing:
    def record(self, event: Event) -> None:
        raise OSError("the terminal is gone")


class Listening:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def record(self, event: Event) -> None:
        self.heard.append(event)


def test_a_tracker_that_fails_is_dropped_and_the_others_hear_of_it() -> None:
    listening = Listening()
    trackers = Trackers([Failing(), Failing(), listening])
    trackers.record(RoundStarted(round=1))
    trackers.record(RoundStarted(round=2))
    assert [event.name for event in listening.heard] == ["round_started", "warning", "warning", "round_started"]
    warnings = [event.message for event in listening.heard if isinstance(event, Warned)]
    assert len(warnings) == 2 and warnings[0] == warnings[1], "two of them failed, and the run goes on"
    said = warnings[0]
    assert said == (
        "the tracker Failing failed at 'round_started' (OSError: the terminal is gone) and is told nothing more."
    )


def test_an_engine_of_ones_own_may_hold_all_clients(table_experiment: Make, tmp_path: Path) -> None:
    own = table_experiment(method="local", engine=f"{__name__}:OwnEngine")
    assert fedse.run(own, tmp_path).adapter is not None
    with pytest.raises(BadInput, match="clients that share nothing need no connection"):
        table_experiment(method="local", engine="flower")


class OwnEngine(LocalEngine):
    """The local one under another name."""


def test_public_names_load_no_torch() -> None:
    program = (
        "import sys, fedse\n"
        "for name in fedse.__all__: getattr(fedse, name)\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "from fedse import World, Task, Turn, Trajectory, Rule, run, load_experiment\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_mistyped_name_still_gets_a_hint(table_experiment: Make) -> None:
    with pytest.raises(BadInput, match="did you mean 'uniform'"):
        table_experiment(curriculum="unifrom")
    with pytest.raises(BadInput, match="Known: drift, pass_at_k; a class of your own"):
        table_experiment(probes=["leaks"])
