"""The checker's promise about tasks that a world makes: new, the same everywhere, never a held-out one, and solved by what
reached them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from fedse.errors import BadInput
from fedse.plugins.promises import NotMade, demand, expected
from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Split, Task
from fedse.worlds.made import base_of, is_made, made_id
from fedse.worlds.reference import ceiling
from fedse.worlds.transcripts import sample
from fedse.worlds.world import World

_TASKS = 12
_SEEDS = (0, 1)
_HELD_OUT = 12
HELD_OUT: tuple[Split, ...] = ("validation", "test")


def made_tasks(world_factory: Callable[[], World]) -> str:
    world, other = world_factory(), world_factory()
    first = world.tasks("train")[0].id
    if not world.makes_tasks:
        with expected(BadInput, "vary() of a world that makes no tasks"):
            world.vary(first, 0)
        with expected(BadInput, "made() of a world that makes no tasks"):
            world.made(made_id(first, "x"))
        raise NotMade("this world makes none")
    with expected(BadInput, "made() with an id that nobody gave"):
        world.made(made_id(first, "no such thing"))
    for split in HELD_OUT:
        for task in sample(world.tasks(split), _TASKS):
            with expected(BadInput, f"vary() of a {split} task"):
                world.vary(task.id, 0)
    varied = list(_varied(world, other))
    reached = list(_achieved(world, other))
    joined = list(_composed(world, other, varied)) if world.composes_tasks else []
    _never_held_out(world, [*varied, *reached, *joined])
    if world.has_expert and varied:
        solved = ceiling(world, [*varied, *joined])
        demand(solved == 1, f"the expert solves {solved:.1%} of the tasks that vary() and compose() give")
    together = f", {len(joined)} composed" if world.composes_tasks else ""
    return (
        f"{len(varied)} tasks varied{together}, {len(reached)} achieved and solved by the same actions, none held out"
    )


def _varied(world: World, other: World) -> Iterator[Task]:
    for task in sample(world.tasks("train"), _TASKS):
        for seed in _SEEDS:
            found = world.vary(task.id, seed)
            demand(found == other.vary(task.id, seed), f"task {task.id}: two instances vary it differently")
            if found is not None:
                yield _sound(world, found, task.id)


def _composed(world: World, other: World, varied: list[Task]) -> Iterator[Task]:
    for one, two in pairwise(varied):
        found = world.compose(one.id, two.id)
        demand(found == other.compose(two.id, one.id), f"{one.id} and {two.id} make another task the other way round")
        if found is not None:
            yield _sound(world, found, base_of(one.id))


def _sound(world: World, found: Task, base: str) -> Task:
    demand(is_made(found.id) and base_of(found.id) == base, f"{found.id!r} does not name the task it was made of")
    demand(world.made(found.id) == found, f"made() does not know {found.id!r}")
    listed = {task.id for split in SPLITS for task in world.tasks(split)}
    demand(found.id not in listed, f"{found.id!r} is a listed task")
    return found


def _achieved(world: World, other: World) -> Iterator[Task]:
    for task in sample(world.tasks("train"), _TASKS):
        world.reset(options={"task": task.id})
        actions: list[str] = []
        over = False
        while not over:
            actions.append(world.trivial(uniform(stream("check made", task.id), len(actions))))
            *_, terminated, truncated, _ = world.step(actions[-1])
            over = terminated or truncated
        here = world.save()
        found = world.achieved()
        demand(world.save() == here, f"task {task.id}: asking what was achieved changes the state")
        other.restore(here)
        demand(other.achieved() == found, f"task {task.id}: two instances see different things achieved")
        if found is not None:
            _sound(world, found, task.id)
            demand(
                _solves(other, found.id, actions), f"{found.id!r} was achieved, and the same actions do not solve it"
            )
            yield found


def _solves(world: World, task: str, actions: list[str]) -> bool:
    world.reset(options={"task": task})
    for action in actions:
        *_, terminated, truncated, info = world.step(action)
        if terminated or truncated:
            return bool(info["success"])
    return False


def _never_held_out(world: World, made: list[Task]) -> None:
    """By what stands there when they begin: an id says nothing."""
    held_out = {_beginning(world, task.id) for split in HELD_OUT for task in sample(world.tasks(split), _HELD_OUT)}
    for task in made:
        demand(_beginning(world, task.id) not in held_out, f"{task.id!r} is a task of validation or test")


def _beginning(world: World, task: str) -> tuple[str, str]:
    observation, _ = world.reset(options={"task": task})
    return observation, world.drawing()
