"""Gymnasium environments that are made for one task: a stand-in with the signature of tau2's `AgentGymEnv`."""

from __future__ import annotations

import json
import random
from typing import Any

import gymnasium
import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.foreign.gymnasium_text import GymnasiumText


class AnyText(gymnasium.spaces.Space[str]):
    """tau2 has a space of its own, which contains every text and draws none."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


class Ticket:
    def __init__(self, task: str) -> None:
        self.ticket = f"Refund order {task}."


class AgentGymEnv(gymnasium.Env[str, str]):
    """A help desk."""

    made: list[str] = []  # noqa: RUF012
    closed = 0

    def __init__(
        self,
        domain: str,
        task_id: str,
        max_steps: int = 100,
        solo_mode: bool = False,
        user_llm: str | None = None,
        user_llm_args: dict[str, Any] | None = None,
        all_messages_as_observation: bool = False,
    ) -> None:
        self.domain, self.task_id, self.solo_mode = domain, task_id, solo_mode
        self.observation_space, self.action_space = AnyText(), AnyText()
        self.made.append(task_id)

    def info(self) -> dict[str, Any]:
        return {
            "task": Ticket(self.task_id),
            "simulation_run": {},
            "tools": ["refund(order)", "done()"],
            "policy": "Be kind.",
        }

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.paid, self.mood = "", random.random()
        return "" if self.solo_mode else f"user: help ({self.domain}, {self.mood:.3f})", self.info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "done()":
            return "", float(self.paid == self.task_id), True, False, self.info()
        if not action.startswith("refund("):
            return "Invalid action with error: unknown", 0.0, False, False, self.info()
        self.paid = action.removeprefix("refund(").rstrip(")")
        return f'tool: {{"refunded": "{self.paid}"}}', 0.0, False, False, self.info()

    def close(self) -> None:
        type(self).closed += 1


IDS: dict[str, list[Any]] = {"train": ["t1", "t2", "t3", "t4", "t5", 6], "test": ["0", "1"]}


def desk(**options: Any) -> GymnasiumText:
    given = {"env": f"{__name__}:AgentGymEnv", "env_options": {"domain": "retail"}, "task_ids": IDS, "turn_limit": 5}
    return GymnasiumText(**{"actions": ["refund(1)", "done()"], **given, **options})


def test_a_world_of_named_tasks_keeps_its_promises() -> None:
    promises = (
        "description",
        "splits",
        "same task, same episode",
        "save and restore",
        "no global random state",
        "silent",
    )
    assert [finding for finding in check(desk, promises) if not finding.passed] == []


def test_the_environment_is_made_for_each_task_by_its_id() -> None:
    AgentGymEnv.made.clear()
    world = desk()
    assert {split: [task.id for task in world.tasks(split)] for split in SPLITS} == {
        "train": ["t1", "t2", "t3", "t4", "t5"],
        "validation": ["6"],
        "test": ["0", "1"],
    }
    assert world.rules.startswith("A help desk.\nAn action is a line of text.")
    before = AgentGymEnv.closed
    first, _ = world.reset(options={"task": "1"})
    assert first.startswith("user: help (retail, ")
    world.step("refund(1)")
    assert world.step("done()")[2:] == (True, False, {"valid": True, "success": True, "score": 1.0})
    assert world.reset(options={"task": "1"})[0] == first, "the same task again is the same episode"
    world.reset(options={"task": "6"})
    world.step("refund(1)")
    assert world.step("done()")[4]["success"] is False
    # The first is made for the rules; an id comes as it was given.
    assert AgentGymEnv.made == ["t1", "1", 6] and AgentGymEnv.closed == before + 2


def test_what_the_environment_says_beside_the_observation_can_be_told() -> None:
    world = desk(env_options={"domain": "telecom", "solo_mode": True}, info=["policy", "tools", "task.ticket"])
    first, _ = world.reset(options={"task": "0"})
    assert first == "Be kind.\nrefund(order)\ndone()\nRefund order 0."
    with pytest.raises(BadInput, match=r"no 'task.colour'; it has: task, simulation_run, tools, policy"):
        desk(info=["task.colour"]).reset(options={"task": "0"})


def test_another_keyword_and_a_registered_environment() -> None:
    class Other(AgentGymEnv):
        def __init__(self, name: str) -> None:
            super().__init__("", name)

    gymnasium.register("Desk-v0", entry_point=Other)
    try:
        world = desk(env="Desk-v0", env_options={}, task_key="name")
        assert json.dumps(world.reset(options={"task": "t3"})[0]).startswith('"user: help (, ')
        with pytest.raises(BadInput, match="does not accept its env_options"):
            desk(env="Desk-v0", env_options={}).reset(options={"task": "t3"})
    finally:
        gymnasium.registry.pop("Desk-v0")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"task_ids": {"train": ["a", "b"]}}, "no ids for test"),
        ({"task_ids": {"train": ["a"], "test": ["b"]}}, "too few ids to have any for train"),
        ({"task_ids": {"train": ["a", "1"], "test": [1]}}, "validation and test share '1'"),
        ({"train_tasks": 5}, "`train_tasks` has no effect beside"),
        ({"task_ids": {}, "task_key": "name"}, "`task_key` has no effect without"),
    ],
)
def test_ids_that_do_not_fit_are_told(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        desk(**options)
