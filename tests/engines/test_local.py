from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from assembled import assembled
from fedse.adapters.packing import pack
from fedse.engines import local
from fedse.events import Event, RoundFinished
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.probes.evaluation import evaluation_of
from fedse.starts import demonstrations
from fedse.types import RoundTask, Trajectory
from fedse.worlds import reference
from fedse.worlds.world import World
from short_maze import SHORT_MAZE


def test_clients_with_different_adapters_play_with_their_own_and_alike_ones_share_a_batch(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    site = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(clients={"east": site, "north": site, "west": site})
    federation = assembled(experiment, tmp_path / "run")
    adapter = federation.initial_adapter()
    shifts = {"east": 0.0, "north": 1.0, "west": 0.0}
    tasks = {
        name: RoundTask(1, "train", pack(adapter) + np.float32(shift), adapter.layout, adapter.config)
        for name, shift in shifts.items()
    }
    federation.engine.send(tasks)
    updates = [federation.engine.poll()[0] for _ in tasks]
    assert [update.client for update in updates] == ["east", "north", "west"]
    played = {
        client.name: {trajectory.adapter for trajectory in client.experience.journal.read("0001")}
        for client in federation.clients
    }
    assert played["east"] == played["west"] != played["north"]
    assert all(len(digests) == 1 for digests in played.values())
    events = [json.loads(line) for line in (federation.run.path / "events.jsonl").read_text().splitlines()]
    assert [event["episodes"] for event in events if event["event"] == "episodes_played"] == [50, 25]


@pytest.mark.slow
def test_clients_that_learn_at_once_lead_to_the_same_adapter(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedse.learners.imitation import Imitation

    together: list[int] = []
    learn_together = Imitation.learn_together

    def noted(learner: Imitation, lessons: Any) -> Any:
        together.append(len(lessons))
        return learn_together(learner, lessons)

    monkeypatch.setattr(Imitation, "learn_together", noted)
    found = {}
    short = ["model.width=16", "model.layers=1", "exploration.tasks=1", "evaluation.tasks=1", "start.tasks=4"]
    for number in (1, 2):
        changes = [*short, f"learner.adapters_at_once={number}"]
        experiment = fedse.load_experiment(tiny_file, changes)
        result = fedse.run(experiment, tmp_path / str(number))
        found[number] = (result.adapter.digest(), result.test)
    assert found[1] == found[2]
    assert together[-6:] == [1, 1, 1, 1, 2, 2]  # Two clients, two rounds.
    slow = fedse.load_experiment(tiny_file, [*changes, "name=slow", "participation.deadline_minutes=60"])
    assert fedse.run(slow, tmp_path / "slow").adapter.digest() == found[1][0]
    assert together[-5:] == [2, 1, 1, 1, 1], "with a deadline nobody waits for others"


class Abstaining:
    """Learns in pairs, and the first of each pair not at all."""

    at_once = 2

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def learn(self, lesson: Any) -> Any:
        return self.learner.learn(lesson)

    def learn_together(self, lessons: Any) -> Any:
        return [None, *[self.learn(lesson) for lesson in lessons[1:]]]


def test_what_was_learned_together_reaches_the_client_it_belongs_to(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    site = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(clients=dict.fromkeys(("a", "b", "c", "d", "e"), site), rounds=1)
    parts = build_components(experiment)
    federation = assembled(experiment, tmp_path / "run", replace(parts, learner=Abstaining(parts.learner)))
    adapter = federation.initial_adapter()
    task = RoundTask(1, "train", pack(adapter), adapter.layout, adapter.config)
    federation.engine.send(dict.fromkeys("abcde", task))
    updates = [federation.engine.poll()[0] for _ in "abcde"]
    # Five in groups of even size: one, two, two.
    assert [(update.client, update.vector is None, update.counts["learned_from"]) for update in updates] == [
        ("a", False, updates[0].counts["buffer"]),
        ("b", True, 0),
        ("c", False, updates[2].counts["buffer"]),
        ("d", True, 0),
        ("e", False, updates[4].counts["buffer"]),
    ]
    measured = RoundTask(1, "evaluate", pack(adapter), adapter.layout, adapter.config, "validation")
    federation.engine.send(dict.fromkeys("abcde", measured))
    assert [federation.engine.poll()[0].scores[0].episodes for _ in "abcde"] == [5] * 5


@pytest.mark.slow
def test_worlds_experts_and_references_in_worker_processes_lead_to_the_same_adapter(
    table_experiment: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_here: list[str] = []

    def noted(module: Any, name: str) -> None:
        work = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: worked_here.append(name) or work(*given))

    noted(demonstrations, "_shown")
    noted(reference, "outcomes")
    asked = {"start": {"name": "demonstrations", "tasks": 50}, "evaluation": {"tasks": 5, "test_tasks": 25}}
    here = fedse.run(table_experiment(**asked), tmp_path / "here")
    # For each of two clients demonstrations, references for validation and for the test.
    assert sorted(worked_here) == ["_shown"] * 2 + ["outcomes"] * 4
    worked_here.clear()
    there = fedse.run(table_experiment(**asked, engine={"processes": 2}), tmp_path / "there")
    assert worked_here == []
    assert here.adapter.digest() == there.adapter.digest()
    assert here.test is not None and there.test is not None
    assert here.test["worlds"] == there.test["worlds"]


def test_clients_in_groups_lead_to_the_same_adapter(
    table_experiment: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(clients={f"c{number}": site for number in range(3)}, exploration={"tasks": 4})
    together = fedse.run(experiment, tmp_path / "together")
    monkeypatch.setattr(local, "WAVES", 0)
    apart = fedse.run(experiment, tmp_path / "apart")
    assert apart.adapter.digest() == together.adapter.digest()
    assert apart.test == together.test
    batches = {name: _batches(tmp_path / name / "table") for name in ("together", "apart")}
    assert [len(found) for found in batches.values()] == [4, 3 * 4]
    assert sum(batches["together"]) == sum(batches["apart"])


def _batches(run: Path) -> list[int]:
    """Episodes of each batch of two rounds and two evaluations."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event["episodes"] for event in events if event["event"] == "episodes_played"]


@pytest.mark.parametrize(
    ("most", "groups"), [(5, [["a", "b"], ["c"], ["d"], ["e"]]), (100, [["a", "b", "c", "d", "e"]])]
)
def test_groups_are_as_large_as_allowed_and_never_empty(
    most: int, groups: list[list[str]], table_experiment: Callable[..., Experiment], tmp_path: Path, monkeypatch: Any
) -> None:
    tasks = {"a": 3, "b": 2, "c": 1, "d": 9, "e": 4}
    site = {"worlds": [SHORT_MAZE]}
    experiment = table_experiment(clients=dict.fromkeys(tasks, site))
    federation = assembled(experiment, tmp_path / "run")
    assert isinstance(federation.engine, local.LocalEngine)
    monkeypatch.setattr(local, "WAVES", most / federation.engine.policy.slots)
    for client in federation.clients:
        evaluation = evaluation_of(client.probes)
        evaluation.options = evaluation.options.model_copy(update={"tasks": tasks[client.name]})
    adapter = federation.initial_adapter()
    task = RoundTask(1, "evaluate", pack(adapter), adapter.layout, adapter.config)
    federation.engine.send(dict.fromkeys(tasks, task))
    assert sum(federation.engine.poll()[0].scores[0].episodes for _ in tasks) == sum(tasks.values())
    events = [json.loads(line) for line in (federation.run.path / "events.jsonl").read_text().splitlines()]
    assert [list(event["clients"]) for event in events if event["event"] == "episodes_planned"] == groups


class Counter:
    """Counts what is held between rounds."""

    def __init__(self) -> None:
        self.held: list[dict[str, int]] = []

    def record(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            gc.collect()
            kinds = {"worlds": World, "trajectories": Trajectory, "connections": sqlite3.Connection}
            things = gc.get_objects()
            self.held.append({name: sum(isinstance(item, kind) for item in things) for name, kind in kinds.items()})


@pytest.mark.slow
@pytest.mark.usefixtures("only_new_objects")
def test_what_is_held_between_rounds_does_not_grow_with_the_number_of_clients(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    site = {"worlds": [SHORT_MAZE]}
    held = []
    for count in (2, 24):
        counter = Counter()
        experiment = table_experiment(
            name=f"of{count}",
            clients={f"c{number:02d}": site for number in range(count)},
            exploration={"tasks": 40 // count},
            evaluation={"tasks": 1, "test_tasks": 0},
        )
        fedse.run(experiment, tmp_path, trackers=[counter])
        held.append(counter.held)
        assert len(counter.held) == 2
    for few, many in zip(*held, strict=True):
        assert many["connections"] == few["connections"] == 0
        assert many["trajectories"] == few["trajectories"]
        # Some worlds of the first run may still be there; a world for each client would be 22 more.
        assert many["worlds"] - few["worlds"] < 10
