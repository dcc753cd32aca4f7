"""What all adapters share: seeds as tasks, a fence around the library's side effects, and state kept by replaying.

A foreign environment can seldom be copied, but the same task and the same actions lead to the same place. So the saved
state is the task's id and the actions so far.
"""

from __future__ import annotations

import contextlib
import io
import random
import threading
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import nearest
from fedse.types import SPLITS, Split, Task
from fedse.worlds.splits import EVALUATION_TASKS
from fedse.worlds.world import Turn, World

REPLY_FORM = "Thought: <short reason>\nAction: <{action}>"
_MOST_TRAIN_TASKS = 100_000
_FIRST_SEED = {"test": 0, "validation": 1_000_000, "train": 2_000_000}
_ONE_AT_A_TIME = threading.RLock()
"""Standard output and the global generators belong to the whole process."""


class AnyText(gymnasium.spaces.Text):
    """Texts of any length and alphabet: other people's environments also write emoji and box-drawing characters."""

    def __init__(self) -> None:
        super().__init__(max_length=1_000_000, min_length=0)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class Fence:
    """Runs a library so that nothing is printed and its draws from the global generators are its own."""

    def __init__(self) -> None:
        self._inner: tuple[Any, Any] | None = None
        self._entered = False

    def seed(self, seed: int) -> None:
        """Start the library's own course of the global generators; libraries that do not seed them draw from here."""
        self._inner = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()
        if self._entered:
            self._swap(self._inner)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """May be entered within itself: a replay goes in once for all its actions, which takes far less time."""
        with _ONE_AT_A_TIME:
            if self._entered:
                yield
                return
            outer = random.getstate(), np.random.get_state()
            if self._inner is None:
                self.seed(0)
            self._swap(self._inner)
            self._entered = True
            try:
                printed = io.StringIO()
                with (
                    contextlib.redirect_stdout(printed),
                    contextlib.redirect_stderr(printed),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore")
                    yield
            finally:
                self._entered = False
                self._inner = random.getstate(), np.random.get_state()
                self._swap(outer)

    @staticmethod
    def _swap(states: Any) -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])


class ForeignWorld(World):
    """A world whose play is somebody else's program."""

    observation_space = AnyText()
    action_space = AnyText()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._fence = Fence()
        self._task = ""
        self._actions: list[str] = []
        self._seen = ""

    def start(self, task: str) -> str:
        """Set the foreign episode up and return its first observation."""
        raise NotImplementedError

    def play(self, action: str) -> Turn:
        """Carry an action out in the foreign episode."""
        raise NotImplementedError

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(task.id for split in SPLITS for task in self.tasks(split))

    def begin(self, task: str) -> str:
        if task not in self._known:
            raise BadInput(
                f"{self.name}: there is no task '{task}'; a task of this world is '{self.tasks('test')[0].id}'."
            )
        self._task, self._actions = task, []
        self._seen = self.start(task)
        return self._seen

    def act(self, action: str) -> Turn:
        self._actions.append(action)
        turn = self.play(action)
        self._seen = turn.observation
        return turn

    @property
    def has_expert(self) -> bool:
        return False

    def expert(self) -> tuple[str, str]:
        raise BadInput(f"{self.name}: this environment has no expert, so it gives no demonstrations and no ceiling.")

    def drawing(self) -> str:
        """The last observation: a foreign environment has no other picture of itself."""
        return self._seen

    def state(self) -> Any:
        return (self._task, tuple(self._actions))

    def set_state(self, state: Any) -> None:
        task, actions = state
        with self._fence.inside():
            self.begin(task)
            for action in actions:
                self.act(action)


class SeededWorld(ForeignWorld):
    """A foreign environment in which a task is a seed. Each split has a range of seeds of its own."""

    class Options(World.Options):
        train_tasks: int = Field(default=600, ge=1, le=_MOST_TRAIN_TASKS)
        """Number of training seeds."""
        pool: int = Field(default=0, ge=0, le=10_000)
        """Which training seeds: clients with different numbers train on different seeds."""

    options: Options

    @cached_property
    def _splits(self) -> dict[Split, list[Task]]:
        counts = {"train": self.options.train_tasks, "validation": EVALUATION_TASKS, "test": EVALUATION_TASKS}
        return {split: [Task(f"{split}-{number}") for number in range(counts[split])] for split in SPLITS}

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._splits[split]

    def seed_of(self, task: str) -> int:
        """The seed behind a task's id. It fits into 32 bits, which is all that some libraries take."""
        split, _, number = task.partition("-")
        pool = self.options.pool if split == "train" else 0
        return _FIRST_SEED[split] + pool * _MOST_TRAIN_TASKS + int(number)


def unknown(name: str, what: str, known: Sequence[str]) -> BadInput:
    hint = nearest(name, known)
    return BadInput(
        f"{what} '{name}' does not exist: {f'{hint}The' if hint else 'the'} library lists {len(known)} of them."
    )
