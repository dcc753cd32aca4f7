"""Variations of what is worth most: how many, of what, and for what attempts at them count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from small_site import MadeUp, attempts, maze, site, training

import fedse
from fedse.clients.guards import checked_plan
from fedse.curricula.variations import Variations
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.types import Purpose, RoundTask, Task
from fedse.worlds.made import base_of, is_made, made_id

Make = Callable[..., Experiment]


def test_a_share_of_a_round_is_made_of_what_by_signal_would_explore() -> None:
    here = site(tasks=20)
    mixed = training("short")[0]
    past = MadeUp([item for task in maze().tasks("train") for item in attempts(1, task, int(task == mixed), 2)])
    chosen = Variations(here, made=0.25).chosen("maze", 2, past)[:20]
    made = [task.id for task in chosen if is_made(task.id)]
    assert len(made) == 5 and len({base_of(task.id) for task in chosen}) == 20
    # The only task with a gap comes first, and so does its variation.
    assert base_of(made[0]) == mixed.id
    assert [task.id for task in Variations(here, made=0.25).chosen("maze", 2, past)[:20]] == [
        item.id for item in chosen
    ]
    later = Variations(here, made=0.25).chosen("maze", 3, past)
    assert base_of(later[0].id) == mixed.id and later[0].id != made[0], "every round varies anew"


def test_attempts_at_a_variation_count_for_the_task_it_was_made_of() -> None:
    mixed = training("long")[0]
    varied = maze().vary(mixed.id, 0)
    assert varied is not None
    failed = [item for task in maze().tasks("train") for item in attempts(1, task, 0, 2)]
    chosen = Variations(site(), made=1.0).chosen("maze", 3, MadeUp([*failed, *attempts(2, varied, 1, 2)]))
    assert base_of(chosen[0].id) == mixed.id


def test_a_plan_with_tasks_that_nobody_made_is_refused() -> None:
    here = site()
    empty: dict[str, object] = {}
    asked = RoundTask(1, "train", None, (), empty)  # type: ignore[arg-type]
    good = maze().vary(training("short")[0].id, 1)
    assert good is not None
    checked_plan(here, asked, [here.episode("maze", good, Purpose.EXPLORE, 1)])
    for id in (made_id("test-short-0", "1.1-1.3"), made_id("train-short-0", "9.9-1.1"), "test-short-0"):
        with pytest.raises(BadInput, match="is not a training task of the world 'maze', nor made of one"):
            checked_plan(here, asked, [here.episode("maze", Task(id), Purpose.EXPLORE, 1)])


def test_a_run_that_stopped_explores_the_same_variations(table_experiment: Make, tmp_path: Path) -> None:
    from test_explored import explored

    keys = {
        "curriculum": {"name": "variations", "per": "category"},
        "clients": {"east": {"worlds": [{"name": "maze", "size": 4, "train_tasks": 30}]}},
        "exploration": {"tasks": 6, "attempts": 2},
    }
    whole = fedse.run(table_experiment(**keys, rounds=2), tmp_path / "whole")
    for rounds in (1, 2):
        halting = fedse.run(table_experiment(**keys, rounds=rounds), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    assert explored(halting.folder) == explored(whole.folder)
    assert Counter(is_made(item.task) for item in explored(whole.folder)) == {True: 12, False: 12}


def test_a_world_that_makes_no_tasks_is_refused_before_a_run_begins(table_experiment: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="curriculum: it needs tasks that worlds make, and the world 'maze' of client"):
        fedse.run(table_experiment(curriculum="variations"), tmp_path)
    assert list(tmp_path.iterdir()) == []
