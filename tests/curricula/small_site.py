"""A site with one maze, and a past that a test makes up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fedse.clients.site import ExplorationOptions, Origin, Place, Site
from fedse.types import Attempt, Outcome, Task
from fedse.worlds.maze import Maze


@cache
def maze() -> Maze:
    return Maze(train_tasks=90)


class Silent(Maze):
    """Gives no hints."""

    has_hints = False


def site(tasks: int = 30, attempts: int = 1, seed: int = 0, label: str = "maze") -> Site:
    places = {label: Place(label, maze, Origin("east", label))}
    unused: Any = None
    return Site("east", places, unused, seed, Path("nowhere"), ExplorationOptions(tasks=tasks, attempts=attempts))


def training(category: str) -> list[Task]:
    return [task for task in maze().tasks("train") if task.category == category]


class MadeUp:
    """Attempts by round."""

    def __init__(self, attempts: Sequence[Attempt] = ()) -> None:
        self.known = sorted(attempts)

    def attempts(self, world: str = "") -> list[Attempt]:
        return [item for item in self.known if world in ("", item.world)]


def attempts(round: int, task: Task, successes: int, tries: int, label: str = "maze") -> list[Attempt]:
    """So many attempts at a task, the first of them successful."""
    results = [(Outcome.SUCCESS, 1.0)] * successes + [(Outcome.FAILURE, 0.0)] * (tries - successes)
    return [
        Attempt(round, label, task.id, task.category, number, outcome, score, score, 5)
        for number, (outcome, score) in enumerate(results)
    ]


def played(round: int, tasks: Sequence[Task], successes: Callable[[Task], int], tries: int) -> list[Attempt]:
    return [item for task in tasks for item in attempts(round, task, successes(task), tries)]
