"""Floor and ceiling: what a policy that does not think and one that knows everything reach on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedse.seeds import stream, uniform
from fedse.types import Task
from fedse.worlds.answers import BREAKING
from fedse.worlds.world import World


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


def floor(world: World, tasks: Sequence[Task], repeats: int = 3) -> float:
    """Share of tasks the trivial policy solves."""
    outcomes = []
    for task in tasks:
        for attempt in range(repeats):
            key = stream("floor", task.id, attempt)
            outcomes.append(_solved(world, task, lambda turn, key=key: world.trivial(uniform(key, turn))))  # type: ignore[misc]
    return _share(outcomes)


def ceiling(world: World, tasks: Sequence[Task]) -> float:
    """Share of tasks the expert solves."""
    return _share([_solved(world, task, lambda _: world.expert()[1]) for task in tasks])
