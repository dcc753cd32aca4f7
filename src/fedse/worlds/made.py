"""Tasks that a world makes of its training tasks. Their ids name the training task and what is other about the made one, so
that an id determines the episode on any machine, as every id does."""

from __future__ import annotations

from collections.abc import Iterator

from fedse.errors import BadInput
from fedse.seeds import stream, uniform

MARK = "~"


def made_id(base: str, change: str) -> str:
    """The id of a task made of a training task.

    >>> made_id("train-short-3", "1.1-2.4")
    'train-short-3~1.1-2.4'
    """
    return f"{base}{MARK}{change}"


def is_made(task: str) -> bool:
    return MARK in task


def base_of(task: str) -> str:
    """The training task that a made one was made of; any other task is its own."""
    return task.partition(MARK)[0]


def change_of(task: str) -> str:
    """What is other about a made task; nothing about any other."""
    return task.partition(MARK)[2]


def not_made(world: str, task: str) -> BadInput:
    return BadInput(f"{world}: there is no made task '{task}': ask the world for one with `vary` or `achieved`.")


def draws(*name: str | int) -> Iterator[float]:
    """Uniform numbers by the name of what they are for."""
    key = stream("made task", *name)
    return (uniform(key, index) for index in range(1 << 62))
