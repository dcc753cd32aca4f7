"""What all worlds share: the Gymnasium interface, turn counting and the difference between ended, cut off and broken.

A world implements the methods that raise `NotImplementedError` here. It uses no global random state, prints nothing,
and derives everything about an episode from its options and the task's id.
"""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, SupportsFloat

import gymnasium

from fedse.errors import BadInput
from fedse.plugins import PluginOptions, read_options, resolve
from fedse.types import Split, Task
from fedse.worlds.made import base_of, not_made
from fedse.worlds.training_part import TrainingPart


@dataclass(frozen=True, slots=True)
class Turn:
    """What the world says to an action."""

    observation: str
    valid: bool = True
    done: bool = False
    success: bool = False
    score: float = 0.0


class World(gymnasium.Env[str, str]):
    """A private place with tasks, rules and its own idea of success."""

    name: ClassVar[str]
    version: ClassVar[int]
    """Rises whenever the same task id would give another transcript."""
    training_part: TrainingPart | None = None
    """The part of the training tasks that whoever made this instance has; `tasks` lists all of them all the same, and
    `worlds.answers.tasks_of` only those of the part."""

    class Options(PluginOptions):
        pass

    observation_space = gymnasium.spaces.Text(max_length=100_000, min_length=0, charset=string.printable)
    action_space = gymnasium.spaces.Text(max_length=1_000, min_length=0, charset=string.printable)

    def __init__(self, **options: Any) -> None:
        self.options = read_options(self.Options, self.name, options)
        self._turns = 0
        self._ended = True

    @property
    @abstractmethod
    def rules(self) -> str:
        """The text that opens every episode: the agent's role, the action grammar and the form of a reply."""
        raise NotImplementedError(self._lacks("rules"))

    @property
    @abstractmethod
    def turn_limit(self) -> int:
        raise NotImplementedError(self._lacks("turn_limit"))

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, always in the same order. In clean worlds the splits are disjoint."""
        raise NotImplementedError(self._lacks("tasks"))

    def subject(self, task: str) -> str:
        """What a training task is about, where several are about the same: a word, a goal. Parts of the training tasks
        have no subject in common."""
        return base_of(task) if self.makes_tasks else task

    @abstractmethod
    def begin(self, task: str) -> str:
        """Set the episode up and return its first observation. An unknown task id is a `BadInput`."""
        raise NotImplementedError(self._lacks("begin"))

    @abstractmethod
    def act(self, action: str) -> Turn:
        """Carry an action out. An action that means nothing here gets the world's own sentence and `valid=False`."""
        raise NotImplementedError(self._lacks("act"))

    def expert(self) -> tuple[str, str]:
        """A plausible thought and a good action for the present state. It may look at what the agent cannot see."""
        raise NotImplementedError(self._lacks("expert"))

    @property
    def has_expert(self) -> bool:
        """Whether `expert` knows what to do. Without one there are no demonstrations, and the ceiling is not known."""
        return True

    def hint(self, level: int) -> str:
        """Help for the present state in a sentence or two, stronger by level from 1 to 3: what to mind, what to aim at, the
        next good action. It may look at what the agent cannot see, and changes nothing."""
        raise BadInput(f"{self.name}: this world gives no hints (level {level} was asked for).")

    @property
    def has_hints(self) -> bool:
        """Whether `hint` knows something. Without hints, a curriculum cannot help where everything fails."""
        return False

    def vary(self, task: str, seed: int) -> Task | None:
        """A new task near a training or made one: in the same place, with something else to do. None where there is none.

        It can be begun by its id like any other. It never is a task of validation or test under another id."""
        raise BadInput(f"{self.name}: this world makes no tasks (one like '{task}' was asked for, seed {seed}).")

    def compose(self, one: str, other: str) -> Task | None:
        """A new task that asks for what two made tasks in the same place ask for; None where these two make none."""
        raise BadInput(f"{self.name}: this world composes no tasks (of '{one}' and '{other}').")

    @property
    def composes_tasks(self) -> bool:
        """Whether `compose` is there."""
        return False

    def achieved(self) -> Task | None:
        """What the episode has reached by now, as a made task that the same actions solve, if that is not its own goal; None
        where it is nothing that could be a task. Changes nothing."""
        raise BadInput(f"{self.name}: this world makes no tasks (what was achieved was asked for).")

    def made(self, task: str) -> Task:
        """The made task of an id. An id that `vary` or `achieved` could not have given is a `BadInput`."""
        raise BadInput(f"{self.name}: this world makes no tasks ('{task}' was asked for).")

    @property
    def makes_tasks(self) -> bool:
        """Whether `vary`, `achieved` and `made` are there. Where failures teach nothing, `achieved` always gives None."""
        return False

    def training_base(self, task: str) -> str:
        """The training task of which one was made, or which it is. Nothing is made of any other: that is a `BadInput`."""
        base = base_of(task)
        if not self.makes_tasks or base not in self._training_ids:
            raise not_made(self.name, task)
        return base

    @cached_property
    def _training_ids(self) -> frozenset[str]:
        return frozenset(task.id for task in self.tasks("train"))

    def trivial(self, draw: float) -> str:
        """An action chosen without thinking; `draw` is a uniform number in [0, 1). Played to measure the floor."""
        raise NotImplementedError(self._lacks("trivial"))

    def legal_actions(self) -> list[str] | None:
        """Actions that mean something in the present state, or None where they cannot be listed."""
        return None

    def open_actions(self) -> list[tuple[str, str]]:
        """Actions with words of the agent's own that mean something in the present state: what stands before and after
        the words, `("search[", "]")`. Both say something; any words on one line will do that hold no sign of either."""
        return []

    def drawing(self) -> str:
        """The present state for a person to look at."""
        raise NotImplementedError(self._lacks("drawing"))

    def state(self) -> Any:
        """The world's own part of the present state: plain values, taken back by `set_state` in any instance."""
        raise NotImplementedError(self._lacks("state"))

    def set_state(self, state: Any) -> None:
        raise NotImplementedError(self._lacks("set_state"))

    def _lacks(self, method: str) -> str:
        return f"{type(self).__name__} has no `{method}`, which every world needs"

    def save(self) -> Any:
        """The state of the episode, so that later play can branch from it."""
        return (self._turns, self._ended, self.state())

    def restore(self, saved: Any) -> None:
        self._turns, self._ended, state = saved
        self.set_state(state)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task `options["task"]`. Without one, `seed` picks a training task."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if task is None:
            training = self.tasks("train")
            task = training[int(self.np_random.integers(len(training)))].id
        if not isinstance(task, str):
            raise BadInput(f"{self.name}: a task is given by its id, a string, not {task!r}.")
        self._turns, self._ended = 0, False
        return self.begin(task), {"task": task}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """One turn. `truncated` means the turn limit was reached; `info["success"]` is there once the episode is over."""
        if self._ended:
            raise RuntimeError(f"{self.name}: step() after the episode ended; call reset() first")
        turn = self.act(action)
        self._turns += 1
        truncated = not turn.done and self._turns >= self.turn_limit
        self._ended = turn.done or truncated
        info: dict[str, Any] = {"valid": turn.valid}
        if self._ended:
            info["success"] = turn.success
            info["score"] = turn.score
        return turn.observation, turn.score, turn.done, truncated, info


def world_class(name: str) -> type[World]:
    """The class behind a name. The methods of the protocol are not enough: fedse asks a world for what the base has too."""
    kind = resolve("world", name)
    if not issubclass(kind, World):
        raise BadInput(f"'{name}' is not a world: its class does not inherit from fedse.worlds.world.World.")
    return kind
