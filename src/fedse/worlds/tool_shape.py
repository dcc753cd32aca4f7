"""Our worlds in the shape that trainers of tool-using models take: an object with `reset`, one tool and `get_reward`.

trainer = GRPOTrainer(..., environment_factory=as_tools("maze"), train_dataset=Dataset.from_list(task_rows("maze")))
"""

from __future__ import annotations

from typing import Any

from fedse.plugins import resolve
from fedse.types import Split
from fedse.worlds.answers import tasks_of
from fedse.worlds.world import World

_BY_CALL = "Do not write the action into your reply: call the tool `act` with it."
"""Rules end with the form of a reply for agents that write their actions."""


class Tools:
    """A world as an object whose public methods are tools, as TRL's `environment_factory` makes them."""

    _kind: type[World]
    _options: dict[str, Any]

    def __init__(self) -> None:
        self._world = self._kind(**self._options)
        self._score = 0.0
        self.done = True

    def reset(self, task: str | None = None, seed: int | None = None, **row: Any) -> str:
        """Begin a task, or one that the seed picks, and return what is seen. Other columns of a row are left alone."""
        del row
        self._score, self.done = 0.0, False
        observation, _ = self._world.reset(seed=seed, options={"task": task})
        return observation

    def act(self, action: str) -> str:
        """
        Carry one action out and return what is seen then.

        Args:
            action: The action, written as the rules say, without `Action:` before it.

        Returns:
            What is seen after the action.
        """
        if self.done:
            raise ValueError("The episode is over.")
        observation, _, terminated, truncated, info = self._world.step(action)
        self.done = bool(terminated or truncated)
        self._score = float(info["score"]) if self.done else 0.0
        return observation

    def get_reward(self) -> float:
        """The world's score of the episode; 0 while it is not over."""
        return self._score


def as_tools(world: str | type[World], **options: Any) -> type[Tools]:
    """A class for TRL's `environment_factory` that makes the world with these options for every rollout.

    The world is named as in an experiment file, or given as its class.
    """
    kind = resolve("world", world) if isinstance(world, str) else world
    # Options that do not fit are told now, not in the middle of somebody's training.
    kind(**options)
    return type(kind.__name__, (Tools,), {"__doc__": kind.__doc__, "_kind": kind, "_options": options})


def task_rows(world: str | type[World], split: Split = "train", **options: Any) -> list[dict[str, Any]]:
    """The tasks of a split as rows of a data set for `as_tools`: the rules as a prompt, and the task's id."""
    place = as_tools(world, **options)()._world
    return [
        {"prompt": [{"role": "user", "content": f"{place.rules}\n\n{_BY_CALL}\n\n"}], "task": task.id}
        for task in tasks_of(place, split)
    ]
