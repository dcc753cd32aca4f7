"""Tasks composed of solved ones: which, how many, that both halves are needed, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_site import MadeUp

import fedse
from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.curricula.composed import Composed
from fedse.curricula.uniform import Uniform
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat
from fedse.starts.demonstrations import demonstration
from fedse.types import Outcome, Purpose, Task, Trajectory
from fedse.worlds.babyai import BabyAI
from fedse.worlds.made import base_of, change_of, is_made
from fedse.worlds.splits import assigned_split


@cache
def rooms() -> BabyAI:
    return BabyAI(levels=["PickupDistDebug", "GoToObjS6"], train_tasks=24, longest=12, turn_limit=20)


def site(tasks: int) -> Site:
    places = {"babyai": Place("babyai", rooms, Origin("east", "babyai"))}
    return Site("east", places, ByteChat(), 0, Path("nowhere"), ExplorationOptions(tasks=tasks))


class Solved(MadeUp):
    def __init__(self, *tasks: str, outcome: Outcome = Outcome.SUCCESS) -> None:
        super().__init__()
        self.tasks, self.outcome = tasks, outcome

    def remembered(self, world: str) -> list[Trajectory]:
        shown = [demonstration("east", world, task, "", (), "", outcome=self.outcome) for task in self.tasks]
        return [replace(item, purpose=Purpose.RELABEL) for item in shown]


@cache
def variations() -> tuple[str, ...]:
    """Several in each of some rooms."""
    tasks = [task for task in rooms().tasks("train") if task.category == "PickupDistDebug"][:4]
    made = (rooms().vary(task.id, seed) for task in tasks for seed in range(12))
    return tuple(sorted({task.id for task in made if task is not None}))


def test_two_solved_tasks_of_the_same_rooms_become_one_that_asks_for_both() -> None:
    chosen = Composed(site(8), share=0.5).chosen("babyai", 2, Solved(*variations()))
    made = [task for task in chosen if is_made(task.id)]
    assert len(made) == 4 and made == chosen[:4]
    for task in made:
        one, other = change_of(task.id).split("+")
        assert {f"{base_of(task.id)}~{word}" for word in (one, other)} <= set(variations())
        assert assigned_split(rooms().layout(task.id).key()) == "train"
        rooms().reset(options={"task": task.id})
        said = rooms().mission()
        assert " and " in said and all(word.split("-")[2] in said for word in (one, other))
    assert chosen[4:] == Uniform(site(8)).chosen("babyai", 2, Solved())
    assert Composed(site(8), share=0.5).chosen("babyai", 3, Solved(*variations()))[:4] != made


def test_what_failed_or_stands_elsewhere_is_not_composed() -> None:
    plain = Uniform(site(8)).chosen("babyai", 2, Solved())
    one = variations()[0]
    elsewhere = next(task for task in variations() if base_of(task) != base_of(one))
    for past in (Solved(), Solved(one, elsewhere), Solved(*variations(), outcome=Outcome.FAILURE)):
        assert Composed(site(8)).chosen("babyai", 2, past) == plain
    assert rooms().compose(one, elsewhere) is None


def test_half_of_it_is_not_enough() -> None:
    task = next(task for task in Composed(site(8)).chosen("babyai", 2, Solved(*variations())) if "+" in task.id)
    halves = [f"{base_of(task.id)}~{word}" for word in change_of(task.id).split("+")]
    for half in halves:
        actions, over = [], False
        rooms().reset(options={"task": half})
        while not over:
            actions.append(rooms().expert()[1])
            over = rooms().step(actions[-1])[2]
        rooms().reset(options={"task": task.id})
        ends = [rooms().step(action) for action in actions]
        # Whoever picks a thing up has gone to it.
        assert not ends[-1][2] or "pick_up" in half
    over = False
    rooms().reset(options={"task": task.id})
    while not over:
        *_, over, _, info = rooms().step(rooms().expert()[1])
    assert info["success"]


def test_a_world_that_composes_nothing_is_refused(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    clients: Any = {"east": {"worlds": ["maze"]}}
    with pytest.raises(BadInput, match="it needs tasks that worlds compose, and the world 'maze' of client 'east'"):
        fedse.run(table_experiment(curriculum="composed", clients=clients), tmp_path)
    with pytest.raises(BadInput, match="there is no made task"):
        rooms().made(f"{variations()[0]}+{change_of(variations()[0])}")
    assert isinstance(rooms().made(variations()[0]), Task)
