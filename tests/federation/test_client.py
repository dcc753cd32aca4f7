from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from assembled import assembled
from fedse.clients.client import Client
from fedse.errors import BadInput, NothingTrained, RunConflict
from fedse.events import Event
from fedse.experience.buffer import read_file
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, Episode, Lesson, Play, Purpose, RoundTask
from short_maze import SHORT_MAZE


def task(adapter: Adapter, number: int = 1, **changes: Any) -> RoundTask:
    from fedse.adapters.packing import pack

    return RoundTask(
        number, **{"kind": "train", "vector": pack(adapter), "layout": adapter.layout, "config": {}, **changes}
    )


@pytest.fixture
def client(table_experiment: Callable[..., Experiment], tmp_path: Path) -> Any:
    experiment = table_experiment(evaluation={"tasks": 5, "tasks_per_round": 2, "test_tasks": None})
    federation = assembled(experiment, tmp_path / "run")
    return federation.clients[0], federation.initial_adapter()


def planned(site: Client, item: RoundTask) -> Sequence[Episode]:
    """What a client asks for first."""
    asked = next(site.work(item))
    assert isinstance(asked, Play)
    return asked.episodes


def test_a_plan_is_a_function_of_seed_and_round(client: Any) -> None:
    site, adapter = client
    first, again, later = planned(site, task(adapter)), planned(site, task(adapter)), planned(site, task(adapter, 2))
    assert first == again
    explored = [[e.task.id for e in plan if e.purpose is Purpose.EXPLORE] for plan in (first, later)]
    assert explored[0] != explored[1]
    assert len(explored[0]) == 20 and len(set(explored[0])) == 10
    assert len({e.sampling.key for e in first}) == len(first)
    assert {e.sampling.temperature for e in first if e.purpose is Purpose.EVALUATE} == {0.0}


def test_evaluation_takes_fewer_tasks_between_and_all_test_tasks_when_asked(client: Any) -> None:
    site, adapter = client

    def evaluated(item: RoundTask) -> list[str]:
        return [e.task.id for e in planned(site, item) if e.purpose is Purpose.EVALUATE]

    first, between = evaluated(task(adapter)), evaluated(task(adapter, 2))
    last = evaluated(task(adapter, 2, kind="evaluate"))
    assert (len(first), len(between), first[:2], last) == (5, 2, between, first)
    assert len(evaluated(task(adapter, 2, kind="evaluate", split="test"))) == 25


@pytest.mark.slow
def test_a_client_without_experience_sends_no_update_and_says_so(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    hopeless = {"worlds": [{**SHORT_MAZE, "turn_limit": 1}]}
    able = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(
        start="none",
        model={"name": "table", "actions": ["move up", "sing"]},
        clients={"able": able, "hopeless": {"worlds": [{**hopeless["worlds"][0]}]}},
        filter="success",
        exploration={"tasks": 25, "attempts": 8},
        rounds=1,
    )
    result = fedse.run(experiment, tmp_path)
    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    sent = {name: entry["sent"] for name, entry in report["clients"].items()}
    learned = {name: entry["counts"]["learned_from"] for name, entry in report["clients"].items()}
    assert sent == {name: count > 0 for name, count in learned.items()}
    assert report["diagnostics"]["contributed"] == sorted(name for name in sent if sent[name])


def test_a_round_in_which_nobody_learns_keeps_the_adapter(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(start="none", model={"name": "table", "actions": ["sing"]}, rounds=2)
    result = fedse.run(experiment, tmp_path)
    assert not result.adapter.tensors["table"].any()
    assert json.loads((result.folder / "rounds/0002/report.json").read_text())["diagnostics"] == {"contributed": []}


class Poisoned:
    """A learner that returns something unusable at one site."""

    def __init__(self, model: Any, **options: Any) -> None:
        from fedse.learners.table import TableLearner

        self.real = TableLearner(model)

    def learn(self, lesson: Lesson) -> Any:
        adapter, metrics = self.real.learn(lesson)
        if lesson.trajectories[0].client == "west":
            adapter = Adapter({"table": np.full_like(adapter.tensors["table"], np.nan)}, lesson.start.config)
        return adapter, metrics


class Idle(Poisoned):
    def learn(self, lesson: Lesson) -> Any:
        return lesson.start, {}


def test_a_bad_update_is_refused_with_its_reason_and_the_round_goes_on(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(learner=f"{__name__}:Poisoned"), tmp_path)
    for number in (1, 2):
        report = json.loads((result.folder / f"rounds/{number:04d}/report.json").read_text())
        assert list(report["refused"]) == ["west"] and "not finite" in report["refused"]["west"]
        assert report["diagnostics"]["contributed"] == ["east"]
    assert np.isfinite(result.adapter.tensors["table"]).all() and result.adapter.tensors["table"].any()


class AllPoisoned(Poisoned):
    def learn(self, lesson: Lesson) -> Any:
        return Adapter({"table": np.full_like(lesson.start.tensors["table"], np.inf)}, lesson.start.config), {}


class LossOfNothing(Poisoned):
    def learn(self, lesson: Lesson) -> Any:
        return self.real.learn(lesson)[0], {"loss": float("nan")}


def test_a_round_whose_updates_are_all_refused_keeps_the_adapter_and_reports_why(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(checks={"max_norm": 1e-9}), tmp_path)
    assert not result.adapter.tensors["table"].any()
    assert sorted(json.loads((result.folder / "rounds/0001/report.json").read_text())["refused"]) == ["east", "west"]


def test_a_learner_that_diverges_everywhere_is_an_error(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(NothingTrained) as caught:
        fedse.run(table_experiment(learner=f"{__name__}:AllPoisoned"), tmp_path)
    assert str(caught.value).startswith(
        "no update of round 1 could be used (east: 2048 of its values are not finite; west: 2048 of its values are not "
        "finite): learning diverged, and nothing of the round was stored;"
    )
    assert caught.value.exit_code == 1 and RunFolder.existing(tmp_path / "table").last_round() == 0


def test_what_is_not_a_number_is_null_in_a_report(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(table_experiment(learner=f"{__name__}:LossOfNothing", rounds=1), tmp_path)
    text = (result.folder / "rounds/0001/report.json").read_text()
    assert '"loss": null' in text and "NaN" not in text


def test_two_worlds_of_one_class_keep_labels_of_their_own(table_experiment: Callable[..., Experiment]) -> None:
    worlds = [{"name": "fedse.worlds.maze:Maze", "mode": "original"}, {"name": "fedse.worlds.maze:Maze", "size": 4}]
    parts = build_components(table_experiment(clients={"both": {"worlds": worlds}}))
    assert list(parts.worlds["both"]) == ["Maze", "Maze#2"]


def test_a_world_too_long_for_the_model_is_named(tiny_experiment: Experiment, tmp_path: Path) -> None:
    content = json.loads(tiny_experiment.model_dump_json())
    content["model"]["context"] = 256
    with pytest.raises(BadInput, match="the model's context holds 256"):
        fedse.run(Experiment(**content), tmp_path)


def test_a_tracker_that_fails_does_not_stop_a_run(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    class Failing:
        def record(self, event: Event) -> None:
            raise BrokenPipeError

    assert fedse.run(table_experiment(rounds=1), tmp_path, trackers=[Failing()]).test["round"] == 1


def test_the_test_split_is_played_once(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    first = fedse.run(table_experiment(rounds=1), tmp_path)
    path = first.folder / "evaluations/test-0001.json"
    before = path.stat().st_mtime_ns
    assert fedse.run(table_experiment(rounds=1), tmp_path).test == json.loads(path.read_text())
    assert path.stat().st_mtime_ns == before


def test_a_learner_that_trains_nothing_is_an_error(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(NothingTrained, match="learning changed nothing"):
        fedse.run(table_experiment(learner=f"{__name__}:Idle"), tmp_path)


@pytest.mark.slow
def test_the_buffer_is_never_emptied_and_begins_with_demonstrations(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(rounds=3, exploration={"tasks": 25, "attempts": 4}), tmp_path)
    held = read_file(result.folder / "clients/east/buffer.sqlite")
    rounds = [item.round for item in held]
    assert rounds == sorted(rounds) and set(rounds) == {0, 1, 2, 3}
    assert {item.purpose for item in held if item.round == 0} == {Purpose.DEMONSTRATE}
    report = json.loads((result.folder / "rounds/0003/report.json").read_text())
    assert report["clients"]["east"]["counts"]["buffer"] == len(held)


@pytest.mark.slow
def test_another_experiment_under_the_same_name_is_refused(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    fedse.run(table_experiment(rounds=1), tmp_path)
    with pytest.raises(RunConflict, match=r"different: seed"):
        fedse.run(table_experiment(rounds=1, seed=5), tmp_path)
    with pytest.raises(RunConflict, match="already has 1 rounds"):
        fedse.run(table_experiment(rounds=0), tmp_path)
    assert fedse.run(table_experiment(rounds=2), tmp_path).test["round"] == 2


@pytest.mark.slow
def test_self_evolution_really_happens(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    """Without demonstrations, what rises rose by the agents' own successes."""
    experiment = table_experiment(
        start="none", rounds=5, exploration={"tasks": 25, "attempts": 4}, evaluation={"tasks": 25, "test_tasks": 25}
    )
    result = fedse.run(experiment, tmp_path)
    first = json.loads((result.folder / "rounds/0001/report.json").read_text())["evaluation"]["macro"]
    assert result.validation["macro"] > first + 0.2
