"""One session of a served world: OpenEnv's messages in, OpenEnv's messages out. No network here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedse.errors import BadInput
from fedse.storage.strict_json import parse
from fedse.types import SPLITS, Split, Task
from fedse.worlds.answers import BREAKING, reason, tasks_of
from fedse.worlds.world import World

MakeWorld = Callable[[], World]


class WorldAction(BaseModel):
    """What an agent does."""

    model_config = ConfigDict(extra="forbid")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Not read.")
    action: str = Field(description="The action in the words of the world's rules, without `Action:` before it.")


class WorldObservation(BaseModel):
    """What an agent sees."""

    model_config = ConfigDict(extra="forbid")
    done: bool = Field(default=False, description="Whether the episode is over, by its own end or the turn limit.")
    reward: float | None = Field(default=None, description="What the world gave for the action.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="The task's id, and the rules after a reset.")
    text: str = Field(description="What the agent reads.")
    valid: bool = Field(default=True, description="Whether the action meant something.")
    truncated: bool = Field(default=False, description="Whether the turn limit ended the episode.")
    success: bool | None = Field(default=None, description="Whether the task is solved, once the episode is over.")


class WorldState(BaseModel):
    """Where an episode stands."""

    model_config = ConfigDict(extra="allow")
    episode_id: str | None = Field(default=None, description="Name of the episode.")
    step_count: int = Field(default=0, ge=0, description="Actions so far.")
    task: str | None = Field(default=None, description="Id of the task.")


class ResetData(BaseModel):
    """Which task an episode is about: its id, or its place in a split, or one that the seed picks."""

    model_config = ConfigDict(extra="ignore")
    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)
    task: str | None = None
    split: Split | None = None
    index: int | None = Field(default=None, ge=0)


class Session:
    """A world of its own for one connection."""

    def __init__(self, make_world: MakeWorld) -> None:
        self._make_world = make_world
        self._world = make_world()
        self.state = WorldState()

    def answer(self, raw: str) -> str | None:
        """What is said to a message; None when the other side takes its leave."""
        try:
            message = parse(raw)
        except ValueError as error:
            return complaint("INVALID_JSON", f"Invalid JSON: {error}")
        kind = message.get("type") if isinstance(message, dict) else None
        if kind == "close":
            return None
        try:
            match kind:
                case "reset":
                    return _said("observation", self.reset(message.get("data", {})))
                case "step":
                    return _said("observation", self.step(message.get("data")))
                case "state":
                    return _said("state", self.state.model_dump())
        except ValidationError as error:
            return complaint("VALIDATION_ERROR", "Invalid message", errors=error.errors(include_url=False))
        except BadInput as error:
            return complaint("EXECUTION_ERROR", str(error))
        except BREAKING as error:
            # A world that broke may be in any state, so it is not used again.
            self._world = self._make_world()
            return complaint("EXECUTION_ERROR", reason(error))
        return complaint("UNKNOWN_TYPE", f"Unknown message type: {kind}")

    def reset(self, data: Any) -> dict[str, Any]:
        wanted = ResetData.model_validate(data)
        task = wanted.task
        if wanted.split is not None or wanted.index is not None:
            if wanted.split is None or wanted.index is None or task is not None:
                raise BadInput("a task is named by `task`, or by `split` and `index` together.")
            task = task_at(tasks_of(self._world, wanted.split), wanted.index).id
        observation, info = self._world.reset(seed=wanted.seed, options={"task": task})
        self.state = WorldState(episode_id=wanted.episode_id or str(uuid.uuid4()), task=info["task"])
        told = {"task": info["task"], "rules": self._world.rules, "turn_limit": self._world.turn_limit}
        return _shown(WorldObservation(text=observation, metadata=told))

    def step(self, data: Any) -> dict[str, Any]:
        action = WorldAction.model_validate(data)
        observation, reward, terminated, truncated, info = self._world.step(action.action)
        self.state.step_count += 1
        return _shown(
            WorldObservation(
                done=terminated or truncated,
                reward=float(reward),
                metadata={"task": self.state.task},
                text=observation,
                valid=info["valid"],
                truncated=truncated,
                success=info.get("success"),
            )
        )

    def close(self) -> None:
        self._world.close()


def task_at(tasks: Any, index: int) -> Task:
    """Task number `index` of a list."""
    if not 0 <= index < len(tasks):
        raise BadInput(f"there is no task {index}; the split has {len(tasks)}.")
    found: Task = tasks[index]
    return found


def described(world: World, split: Split) -> list[dict[str, Any]]:
    """The tasks of a split as a client may list them."""
    return [
        {"id": task.id, "index": index, "split": split, "category": task.category}
        for index, task in enumerate(tasks_of(world, split))
    ]


def complaint(code: str, message: str, **details: Any) -> str:
    """An error in OpenEnv's form."""
    return _said("error", {"message": message, "code": code, **details})


def schemas() -> dict[str, Any]:
    """JSON schemas of what is sent to and fro."""
    observation = WorldObservation.model_json_schema()
    return {
        "action": WorldAction.model_json_schema(),
        "observation": observation,
        "reset_observation": observation,
        "state": WorldState.model_json_schema(),
    }


def split_names() -> list[dict[str, str]]:
    return [{"name": split, "type": split} for split in SPLITS]


def _shown(observation: WorldObservation) -> dict[str, Any]:
    """Reward and end stand beside the observation on this wire, what else is known stands in both places."""
    return {
        "observation": observation.model_dump(exclude={"reward", "done"}),
        "reward": observation.reward,
        "done": observation.done,
        "metadata": observation.metadata,
    }


def _said(kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data}, default=str)
