"""Help where everything fails: levels follow from the past alone, and what is learned and measured has no hint in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hint_reader import MARK
from small_site import MadeUp, attempts, site, training

import fedse
from fedse.clients.guards import checked_plan
from fedse.curricula.hints import Hints
from fedse.curricula.uniform import Uniform
from fedse.errors import BadInput
from fedse.evaluation.measured import costs
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.runs.reading import RunView
from fedse.types import Episode, Outcome, Purpose, RoundTask

EASY, HARD = training("short"), training("long")
CHAT = ByteChat()


def planned(curriculum: Uniform, past: MadeUp, round: int = 9) -> list[Episode]:
    task = RoundTask(round, "train", np.zeros(1, dtype=np.float32), (), {})
    plan = curriculum.plan(task, past)
    with pytest.raises(StopIteration) as ended:
        next(plan)
    return list(checked_plan(curriculum.site, task, ended.value.value))


@pytest.mark.parametrize(
    ("successes", "level"),
    [
        ([], 0),
        ([0], 1),
        ([0, 0, 0, 0], 3),
        ([1], 1),
        ([2], 0),
        ([7], 0),
        ([0, 2], 1),
        ([0, 7], 1),
        ([0, 8], 0),
        ([0, 8, 8, 1], 1),
        ([0, 0, 0, 0, 20, 3], 2),
    ],
)
def test_a_level_rises_below_a_tenth_and_falls_above_35_percent_of_20(successes: list[int], level: int) -> None:
    past = [item for round, k in enumerate(successes, start=1) for item in attempts(round, HARD[0], k, 20)]
    assert Hints(site()).levels(past).get("long", 0) == level


def test_errors_and_other_categories_say_nothing() -> None:
    broken = [item._replace(outcome=Outcome.ERROR) for item in attempts(2, HARD[0], 0, 8)]
    past = [*attempts(1, HARD[0], 0, 4), *attempts(1, EASY[0], 3, 4), *broken]
    assert Hints(site()).levels(past) == {"long": 1, "short": 0}
    assert Hints(site(), per="task").levels(past) == {HARD[0].id: 1, EASY[0].id: 0}
    many = [item for round in (1, 2, 3) for item in attempts(round, HARD[0], 0, 4)]
    assert Hints(site(), strongest=2).levels(many) == {"long": 2}


def test_a_round_is_a_uniform_one_with_hints_where_they_are_due() -> None:
    past = MadeUp([*attempts(1, HARD[0], 0, 4), *attempts(2, HARD[1], 0, 4), *attempts(2, EASY[0], 2, 4)])
    found = planned(Hints(site(attempts=2)), past)
    assert [replace(item, hint=0) for item in found] == planned(Uniform(site(attempts=2)), past)
    levels = {(item.task.category, item.hint) for item in found}
    assert levels == {("long", 2), ("short", 0), ("medium", 0)}
    apart = planned(Hints(site(tasks=90), per="task"), past)
    assert {item.task.id: item.hint for item in apart if item.hint} == {HARD[0].id: 1, HARD[1].id: 1}


def test_a_plan_with_a_level_that_no_world_has_is_refused() -> None:
    here = site()
    episode = replace(here.episode("maze", HARD[0], Purpose.EXPLORE, 9), hint=4)
    with pytest.raises(BadInput, match="hints of level 4 for the world 'maze', which gives those of the levels 1 to 3"):
        checked_plan(here, RoundTask(9, "train", np.zeros(1, dtype=np.float32), (), {}), [episode])


def test_thresholds_have_to_be_in_order() -> None:
    with pytest.raises(ValueError, match="must not be above"):
        Hints.Options(raise_below=0.5)


Make = Callable[..., Experiment]
FROM_NOTHING: dict[str, Any] = {
    "policy": "hint_reader:HintReader",
    "clients": {"east": {"worlds": [{"name": "maze", "mode": "original"}]}},
    "start": "none",
    "rounds": 6,
    "exploration": {"tasks": 12, "attempts": 2},
    "evaluation": {"tasks": 5, "test_tasks": 25},
}


@pytest.mark.slow
def test_an_agent_that_finds_nothing_by_itself_learns_to_do_without_the_hints(
    table_experiment: Make, tmp_path: Path
) -> None:
    alone = fedse.run(table_experiment(**FROM_NOTHING), tmp_path / "alone")
    helped = fedse.run(table_experiment(**FROM_NOTHING, curriculum="hints"), tmp_path / "helped")
    assert alone.test is not None and helped.test is not None
    assert alone.test["macro"] < 0.1 < 0.5 < helped.test["macro"], "tests are played without hints"

    learned = read_file(helped.folder / "clients/east/buffer.sqlite")
    by_hints = [item for item in learned if any(step.hint for step in item.steps)]
    assert by_hints and all(MARK not in CHAT.text(item.token_ids) for item in learned)
    journal = Journal(helped.folder / "clients/east/episodes")
    counts = {}
    for round in range(1, 7):
        played = list(journal.read(f"{round:04d}"))
        given = [step.hint for item in played for step in item.steps if step.hint]
        assert not any(step.hint for item in played if item.purpose is Purpose.EVALUATE for step in item.steps)
        episodes = sum(any(step.hint for step in item.steps) for item in played)
        counts[round] = (episodes, sum(len(f"\nHint: {hint}".encode()) for hint in given))
    reports = {round: json.loads((helped.folder / f"rounds/{round:04d}/report.json").read_text()) for round in counts}
    told = {round: report["clients"]["east"]["counts"] for round, report in reports.items()}
    assert {round: (item.get("hinted", 0), item.get("hint_tokens", 0)) for round, item in told.items()} == counts
    assert "hinted" not in told[1], "nothing has failed yet"
    all_of_them = costs(RunView(helped.folder), sharing=True, pooled=False)[6].hint_tokens
    assert all_of_them == sum(tokens for _, tokens in counts.values())


def test_hints_stay_in_what_is_learned_where_that_is_asked_for(table_experiment: Make, tmp_path: Path) -> None:
    curriculum = {"name": "hints", "learn_hints": True}
    run = fedse.run(table_experiment(**{**FROM_NOTHING, "rounds": 4}, curriculum=curriculum), tmp_path / "run")
    learned = read_file(run.folder / "clients/east/buffer.sqlite")
    assert any(MARK in CHAT.text(item.token_ids) for item in learned)


def test_a_world_without_hints_is_refused_before_anything_is_written(table_experiment: Make, tmp_path: Path) -> None:
    clients: dict[str, Any] = {"east": {"worlds": ["small_site:Silent"]}}
    with pytest.raises(BadInput, match="it needs hints, and the world 'Silent' of client 'east' gives none"):
        fedse.run(table_experiment(clients=clients, curriculum="hints"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    clients["west"] = {"worlds": ["maze"]}
    clients["east"]["learns"] = False
    build_components(table_experiment(clients=clients, curriculum="hints"))
