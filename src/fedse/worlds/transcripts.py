"""Scripted play of a world, written down in full, so that two instances or two processes can be compared."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fedse.plugins import resolve
from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Task
from fedse.worlds.world import World

INVALID = ("", "dance wildly")
"""The empty action stands for a reply that held none."""


def sample(tasks: Sequence[Task], most: int) -> list[Task]:
    """Tasks spread evenly over a split."""
    return [tasks[place * len(tasks) // min(most, len(tasks))] for place in range(min(most, len(tasks)))]


def some_tasks(world: World, per_split: int = 5) -> list[Task]:
    return [task for split in SPLITS for task in sample(world.tasks(split), per_split)]


def scripted_action(world: World, task: str, turn: int) -> str:
    """Good, thoughtless and meaningless actions by turns, so that transcripts visit many kinds of states."""
    kind = turn % 4
    if kind == 3:
        return INVALID[turn % 2]
    return world.expert()[1] if kind == 1 and world.has_expert else world.trivial(uniform(stream("check", task), turn))


def play_on(world: World, task: str, turn: int) -> Iterator[tuple[Any, ...]]:
    """Everything the world answers from the present state to the end of the episode."""
    while True:
        observation, reward, terminated, truncated, info = world.step(scripted_action(world, task, turn))
        yield observation, float(reward), terminated, truncated, tuple(sorted(info.items())), world.drawing()
        turn += 1
        if terminated or truncated:
            return


def transcript(world: World, task: str) -> list[tuple[Any, ...]]:
    first, _ = world.reset(options={"task": task})
    return [(first, world.rules, world.turn_limit), *play_on(world, task, 0)]


def digest(world: World) -> str:
    """A hash of all task ids and of some transcripts."""
    tasks = [[(task.id, task.category) for task in world.tasks(split)] for split in SPLITS]
    transcripts = [transcript(world, task.id) for task in some_tasks(world)]
    return hashlib.sha256(repr((tasks, transcripts)).encode()).hexdigest()


def digest_in_child(path: str, options: str) -> None:
    """Entry point of the processes that the checker starts."""
    sys.stdout.write(digest(resolve("world", path)(**json.loads(options))))
