from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fedse
from assembled import assembled
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experiments.components import build_components
from fedse.experiments.estimate import MOST_COPIES, PILOT_EPISODES, estimate
from fedse.experiments.options import Experiment
from fedse.experiments.task_counts import fewer_than_asked
from fedse.learners.table import TableLearner
from fedse.runs.folder import RunFolder


class Slow(TableLearner):
    """Takes a tenth of a second, whatever there is to learn."""

    def learn(self, lesson: Any) -> Any:
        time.sleep(0.1)
        return super().learn(lesson)


class Counting(TableLearner):
    """Each step would draw a share of what there is."""

    options: Any = SimpleNamespace()
    sizes: ClassVar[list[int]] = []

    def learn(self, lesson: Any) -> Any:
        self.sizes.append(len(lesson.trajectories))
        return super().learn(lesson)


def test_a_learner_that_draws_shares_is_shown_enough_for_a_step(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(learner=f"{__name__}:Counting")
    parts = build_components(experiment)
    federation = assembled(experiment, tmp_path / "shares", parts)
    for rate, copies in ((0.2, 5), (1e-6, MOST_COPIES), (1.0, 1), (None, 1), ("half", 1), (0.0, 1), (3.0, 1)):
        Counting.options.sampling_rate = rate
        Counting.sizes.clear()
        estimate(federation.clients, parts.model, parts.policy, parts.learner, federation.initial_adapter(), 1)
        assert len(federation.clients) > 1  # All of one world, so that one lesson tells of them all.
        assert Counting.sizes == [copies * PILOT_EPISODES]


def test_worlds_that_differ_in_more_than_their_tasks_are_measured_apart(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    worlds = [{"name": "maze", "rules": rules} for rules in ("full", "brief", "brief")]
    sites = {f"site{number}": {"worlds": [world]} for number, world in enumerate(worlds)}
    experiment = table_experiment(learner=f"{__name__}:Counting", clients=sites)
    parts = build_components(experiment)
    federation = assembled(experiment, tmp_path / "apart", parts)
    Counting.options.sampling_rate = 1.0
    Counting.sizes.clear()
    estimate(federation.clients, parts.model, parts.policy, parts.learner, federation.initial_adapter(), 1)
    assert len(Counting.sizes) == 2


def test_an_estimate_grows_with_the_run_and_is_near_its_disk_use(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(rounds=3)
    parts = build_components(experiment)
    federation = assembled(experiment, tmp_path / "estimate", parts)
    adapter = federation.initial_adapter()
    short, longer = (
        estimate(federation.clients, parts.model, parts.policy, parts.learner, adapter, rounds) for rounds in (3, 30)
    )
    assert 0 < short.seconds < longer.seconds
    assert short.episodes < longer.episodes
    assert all(len(client.experience.buffer) == 0 for client in federation.clients)
    used = RunFolder.existing(fedse.run(experiment, tmp_path).folder).size()
    assert used / 4 < short.bytes < used * 4


ORIGINAL = {"name": "maze", "mode": "original"}
"""25 tasks in each split."""


def test_an_estimate_counts_no_more_tasks_than_worlds_have_and_the_run_says_so(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    asked = {
        "clients": {"east": {"worlds": [ORIGINAL]}, "west": {"worlds": [ORIGINAL], "learns": False}},
        "exploration": {"tasks": 1000},
        "evaluation": {"tasks": 1000, "test_tasks": 10},
    }
    experiment = table_experiment(rounds=2, **asked)
    parts = build_components(experiment)
    federation = assembled(experiment, tmp_path / "estimate", parts)
    found = estimate(
        federation.clients, parts.model, parts.policy, parts.learner, federation.initial_adapter(), experiment.rounds
    )
    folder = fedse.run(experiment, tmp_path).folder
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    explored, evaluated = 25 * experiment.rounds, 2 * (25 * (experiment.rounds + 1) + 10)
    assert found.episodes == explored + evaluated
    told = [event["message"] for event in events if event.get("kind") == "fewer_tasks"]
    assert told == [
        "exploration.tasks asks for 1,000 training tasks of each world, and these have fewer, which are all played: "
        "east: maze 25.",
        "evaluation.tasks asks for 1,000 validation tasks of each world, and these have fewer, which are all played: "
        "east: maze 25, west: maze 25.",
    ]


def test_made_tasks_have_no_number_and_defaults_are_nobodys_wish(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    few = {"east": {"worlds": [{**ORIGINAL, "mode": "clean", "train_tasks": 4}]}}
    making = table_experiment(clients=few, exploration={"tasks": 7}, curriculum="variations")
    drawing = table_experiment(clients=few, exploration={"tasks": 7})
    unset = table_experiment(clients={"east": {"worlds": [ORIGINAL]}}, exploration={}, evaluation={})
    keys = [
        [warning.details["key"] for warning in fewer_than_asked(experiment, build_components(experiment).worlds)]
        for experiment in (making, drawing, unset)
    ]
    assert keys == [[], ["exploration.tasks"], []]


def test_an_estimate_counts_what_buffers_begin_with(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    """Read off the learning time, with a learner whose pilot takes long enough to measure."""
    first = fedse.run(table_experiment(rounds=1, exploration={"tasks": 1}), tmp_path)
    export(read_file(first.folder / "clients/east/buffer.sqlite") * 50, tmp_path / "shown.json")
    seconds = {}
    for name, start in (
        ("none", "none"),
        ("demonstrations", {"tasks": 25}),
        ("recorded", str(tmp_path / "shown.json")),
    ):
        experiment = table_experiment(name=name, start=start, learner=f"{__name__}:Slow")
        parts = build_components(experiment)
        federation = assembled(experiment, tmp_path / name, parts)
        adapter = federation.initial_adapter()
        found = estimate(federation.clients, parts.model, parts.policy, parts.learner, adapter, 10)
        seconds[name] = found.seconds
    assert seconds["none"] < seconds["demonstrations"] < seconds["recorded"]
