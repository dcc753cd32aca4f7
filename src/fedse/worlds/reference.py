"""Floor and ceiling: what a policy that does not think and one that knows everything reach on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedse.seeds import stream, uniform
from fedse.types import Task
from fedse.worlds.answers import BREAKING
from fedse.worlds.world import World

REPEATS = 3
"""Attempts of the trivial policy at each task."""


def play_out(world: World, task: Task, choose: Callable[[int], str]) -> bool:
    """Play one episode with the action `choose(turn)` gives for each turn; whether it succeeded."""
    world.reset(options={"task": task.id})
    for turn in range(world.turn_limit):
        _, _, terminated, truncated, info = world.step(choose(turn))
        if terminated or truncated:
            return bool(info["success"])
    raise RuntimeError(f"{world.name}: the episode of task {task.id} went past its turn limit")


def _solved(world: World, task: Task, choose: Callable[[int], str]) -> bool | None:
    """None where the world broke: an error counts neither for nor against anybody."""
    try:
        return play_out(world, task, choose)
    except BREAKING:
        return None


def _share(outcomes: Sequence[bool | None]) -> float:
    counted = [outcome for outcome in outcomes if outcome is not None]
    return sum(counted) / len(counted) if counted else 0.0


def floor(world: World, tasks: Sequence[Task], repeats: int = REPEATS) -> float:
    """Share of tasks the trivial policy solves."""
    return _share([outcome for task in tasks for outcome in _trivial(world, task, repeats)])


def ceiling(world: World, tasks: Sequence[Task]) -> float:
    """Share of tasks the expert solves."""
    return _share([_expert(world, task) for task in tasks])


def _trivial(world: World, task: Task, repeats: int) -> list[bool | None]:
    keys = [stream("floor", task.id, attempt) for attempt in range(repeats)]
    return [_solved(world, task, lambda turn, key=key: world.trivial(uniform(key, turn))) for key in keys]  # type: ignore[misc]


def _expert(world: World, task: Task) -> bool | None:
    return _solved(world, task, lambda _: world.expert()[1])


Outcomes = tuple[list[bool | None], list[bool | None]]
"""How the attempts of the trivial policy at a task ended, and that of the expert, if there is one."""


def outcomes(world: World, tasks: Sequence[Task]) -> list[Outcomes]:
    """What floor and ceiling are made of, task by task."""
    return [(_trivial(world, task, REPEATS), [_expert(world, task)] if world.has_expert else []) for task in tasks]


def references(found: Sequence[Outcomes]) -> tuple[float, float | None]:
    """Floor and ceiling; no ceiling without an expert."""
    expert = [outcome for _, own in found for outcome in own]
    return _share([outcome for own, _ in found for outcome in own]), _share(expert) if expert else None
