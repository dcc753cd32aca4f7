"""A place to propose tasks in: what an agent says here is a task for another world, if that world takes it for one.

An episode is one turn. It shows how a training task of the other world begins and what other tasks there are called; the
agent answers with a name of its own. The other world decides whether there is such a task.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedse.worlds.answers import is_made_by, varied
from fedse.worlds.made import change_of, made_id
from fedse.worlds.reply_form import asked_for
from fedse.worlds.world import Turn, World

BEFORE, AFTER = "propose[", "]"
_FORM = re.compile(r"\s*propose\[([^\[\]]*)\]\.?\s*", re.IGNORECASE)
_RULES = (
    "You set tasks for yourself. You see how a task begins, and what other tasks in the same place are called. Name one "
    "more that is not among them, that can be done there, and that is neither too easy nor too hard for you.\n"
    f"Answer with:\n{asked_for('why this one', f'{BEFORE}name{AFTER}')}"
)


def proposed(base: str, action: str) -> str:
    """The id of the task that an action proposes in the place of a training task; nothing where it proposes none.

    >>> proposed("train-short-3", "propose[1.1-2.4]"), proposed("train-short-3", "move up")
    ('train-short-3~1.1-2.4', '')
    """
    found = _FORM.fullmatch(action)
    return made_id(base, found[1].strip()) if found and found[1].strip() else ""


@dataclass(frozen=True)
class MakeProposing:
    """Makes such a place for the worlds of another maker."""

    make: Callable[[], World]
    examples: int
    seed: int

    def __call__(self) -> Proposing:
        return Proposing(self.make(), self.examples, self.seed)


class Proposing(World):
    """Names of tasks are proposed here, and tried in another world."""

    name = "proposing"
    version = 1

    def __init__(self, world: World, examples: int = 3, seed: int = 0) -> None:
        super().__init__()
        self.world = world
        self.examples = examples
        self.seed = seed

    @property
    def rules(self) -> str:
        return _RULES

    @property
    def turn_limit(self) -> int:
        return 1

    def begin(self, task: str) -> str:
        self._task = task
        found = [varied(self.world, task, self.seed + number) for number in range(self.examples)]
        self._shown = dict.fromkeys(item.id for item in found if item is not None)
        seen, _ = self.world.reset(options={"task": task})
        names = ", ".join(map(change_of, self._shown))
        return f"{seen}\nOther tasks here: {names}" if names else seen

    def act(self, action: str) -> Turn:
        task = proposed(self._task, action)
        accepted = bool(task) and task not in self._shown and is_made_by(self.world, task)
        said = "There is such a task." if accepted else "There is no such new task."
        return Turn(said, valid=bool(task), done=True, success=accepted, score=float(accepted))

    def open_actions(self) -> list[tuple[str, str]]:
        return [(BEFORE, AFTER)]

    def state(self) -> Any:
        return self._task

    def set_state(self, state: Any) -> None:
        self.begin(state)
