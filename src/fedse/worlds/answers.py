"""What a world may say. Worlds are other people's code: whatever else one says or raises is an error of that world, told
under its name, and never an end of everybody's run."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedse.errors import BadInput, FedseError, WorldBroke
from fedse.types import NAME_LENGTH, LegalActions, Split, Task
from fedse.visible import short
from fedse.worlds.made import MARK, is_made
from fedse.worlds.training_part import part_of
from fedse.worlds.world import World

BREAKING = (Exception, SystemExit)
"""What is raised by a world that breaks. Some libraries leave the process when they are at a loss."""
OTHER = "other"
"""Stands for an exception whose class has no plain name: a class can be named by a sentence."""
_DETAIL = 20_000
"""Characters that are kept of a traceback."""


def plain_text(said: Any, what: str) -> str:
    """A text that can be written down and rendered."""
    if not isinstance(said, str):
        raise WorldBroke(f"{what} has to be a text, not {type(said).__name__}.")
    try:
        said.encode()
    except UnicodeEncodeError as error:
        raise WorldBroke(f"{what} holds an invalid character ({error.reason}).") from error
    return said


def finite_number(said: Any, what: str) -> float:
    """A number that can be added up."""
    try:
        found = float(said)
    except (TypeError, ValueError, OverflowError) as error:
        raise WorldBroke(f"{what} has to be a number, not {type(said).__name__}.") from error
    if not math.isfinite(found):
        raise WorldBroke(f"{what} has to be a finite number, not {found}.")
    return found


def legal_actions(world: World) -> LegalActions | None:
    """What may be done in the present state, or None where the world does not tell."""
    listed = [plain_text(action, "a legal action") for action in world.legal_actions() or ()]
    free = [
        (plain_text(before, "an open action"), plain_text(after, "an open action"))
        for before, after in world.open_actions() or ()
    ]
    return LegalActions(tuple(listed), tuple(free)) if listed or free else None


def tasks_of(world: World, split: Split) -> Sequence[Task]:
    """A split's tasks, each under an id; of the training tasks those in the part that the world was made with."""
    with blamed(world, f"tasks('{split}')"):
        found = world.tasks(split)
        for task in found:
            if not isinstance(task, Task):
                raise WorldBroke(f"a task has to be a `Task`, not {type(task).__name__}.")
            plain_text(task.id, "the id of a task")
            plain_text(task.category, "the category of a task")
        part = part_of(world) if split == "train" else None
        return found if part is None else part.among(world, found)


def varied(world: World, task: str, seed: int) -> Task | None:
    """A task that the world makes of one of its training tasks and that whoever has this part of them may explore."""
    with blamed(world, f"vary('{task}')"):
        return _made(world, world.vary(task, seed))


def composed(world: World, one: str, other: str) -> Task | None:
    """A task that the world makes of two, likewise."""
    with blamed(world, f"compose('{one}', '{other}')"):
        return _made(world, world.compose(one, other))


def achieved(world: World) -> Task | None:
    """What the episode that the world is in has reached, likewise."""
    with blamed(world, "achieved()"):
        return _made(world, world.achieved())


def is_made_by(world: World, task: str) -> bool:
    """Whether the world could have made the task of this id."""
    try:
        return world.makes_tasks and _made(world, world.made(task)) is not None
    except BadInput:
        return False


def _made(world: World, task: Task | None) -> Task | None:
    if task is None:
        return None
    if not isinstance(task, Task) or not is_made(plain_text(task.id, "the id of a task")):
        raise WorldBroke(f"a made task has to be a `Task` with '{MARK}' in its id, not {task!r}.")
    part = part_of(world)
    return task if part is None or part.among(world, [task]) else None


@contextmanager
def blamed(world: World, doing: str) -> Iterator[None]:
    """Whatever is raised in here is an error of the world, and says which world and what it was doing."""
    try:
        yield
    except BREAKING as error:
        raise WorldBroke(
            f"the world '{getattr(world, 'name', type(world).__name__)}' broke in {doing}: {reason(error)}"
        ) from error


def reason(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    said = str(error) if isinstance(error, FedseError) else f"{type(error).__name__}: {error}"
    return short(said, 300)


def kind_of(error: BaseException) -> str:
    """The name under which an error is counted."""
    name = type(error).__name__
    return name if name.isidentifier() and name.isascii() and len(name) <= NAME_LENGTH else OTHER


def detail_of(error: BaseException) -> str:
    """Where it broke, for the site's own eyes; its end, which says most, if it is long."""
    told = "".join(traceback.format_exception(error))[-_DETAIL:]
    return told.encode(errors="backslashreplace").decode()
