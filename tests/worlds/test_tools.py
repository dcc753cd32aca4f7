"""Classes of tools as worlds, and worlds as classes of tools, held against what TRL and transformers ask of them."""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from fedse.errors import BadInput, WorldBroke
from fedse.types import SPLITS
from fedse.worlds import as_tools, task_rows
from fedse.worlds.check import check
from fedse.worlds.foreign.tool_calls import guess, method_tool, written
from fedse.worlds.foreign.tool_class import ToolClass
from fedse.worlds.maze import Maze
from fedse.worlds.reference import floor


class Vault:
    """A vault with two dials.

    What stands here is for programmers.
    """

    def __init__(self, dials: int = 2) -> None:
        self._dials = dials

    def reset(self, seed: int = 0, code: list[int] | None = None, **row: Any) -> str | None:
        self._code = code or [random.Random(seed).randrange(1, 3), random.randrange(3)]
        self._now, self.done, self.asked, self.row = [0] * self._dials, False, 0, row
        print("loading")  # noqa: T201
        return f"The vault has {self._dials} dials. The hint is {random.randrange(1000)}."

    def turn(self, dial: Literal[0, 1], to: int, json: bool = False) -> str:
        """
        Turn a dial.

        Args:
            dial: Which dial.
            to: The number it shows then.
            json: Nobody knows what it does.
        """
        if to > 2:
            raise ValueError(f"a dial has no {to}")
        self._now[dial] = to
        return f"click {json}"

    async def open(self) -> dict[str, Any]:
        """Try to open the vault."""
        self.done = self._now == self._code
        return {"open": self.done, "numbers": self._now}

    def burn(self, where: str) -> None:
        """
        Burn the vault down.

        Args:
            where: Where to begin.
        """
        raise OSError(f"no fire in {where}")

    def get_reward(self) -> float:
        self.asked += 1
        return float(self._now == self._code)

    def _secret(self) -> None:
        pass


MazeTools = as_tools("maze")


def vault(**options: Any) -> ToolClass:
    return ToolClass(**{"factory": f"{__name__}:Vault", "turn_limit": 6, "train_tasks": 8, **options})


@pytest.mark.slow
def test_a_class_of_tools_keeps_every_promise_of_a_world() -> None:
    # All but the one that starts other processes, which takes longer than the others together.
    kept = [
        "description",
        "splits",
        "same task, same episode",
        "no global random state",
        "silent",
        "save and restore",
        "expert",
        "invalid actions and turn limit",
        "legal actions",
        "errors",
        "spaces",
    ]
    findings = check(lambda: vault(turn_limit=4), kept)
    assert [finding.name for finding in findings if finding.passed] == kept


def test_rules_tell_each_tool_by_its_signature() -> None:
    rules = vault().rules
    assert rules.startswith("A vault with two dials.\nTools:\nburn(where: str)\n    Burn the vault down.")
    assert "turn(dial: Literal[0, 1], to: int, json: bool = False)\n    Turn a dial." in rules
    assert "open()" in rules and "finish()" in rules and "programmers" not in rules
    assert not any(name in rules for name in ("reset", "get_reward", "_secret"))


def test_an_episode_is_scored_once_when_the_object_says_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    world = vault(reset={"code": [1, 2], "colour": "red"})
    first, _ = world.reset(options={"task": "test-0"})
    assert first.startswith("The vault has 2 dials.") and world._object.row == {"colour": "red"}
    assert world.step(written("turn", dial=0, to=1))[:2] == ("click False", 0.0)
    assert world.step('{"tool": "turn", "args": {"dial": 1, "to": 2, "json": true}}')[0] == "click True"
    assert world._object.asked == 0
    observation, score, terminated, _, info = world.step('{"tool": "open"}')
    assert json.loads(observation) == {"open": True, "numbers": [1, 2]}
    assert (score, terminated, info["success"], world._object.asked) == (1.0, True, True, 1)
    assert capsys.readouterr().out == ""
    world.close()


def test_an_episode_also_ends_when_the_agent_is_done_and_at_the_turn_limit() -> None:
    world = vault(reset={"code": [0, 1]}, turn_limit=2)
    world.reset(options={"task": "test-0"})
    assert world.step(written("finish"))[2:] == (True, False, {"valid": True, "success": False, "score": 0.0})
    world.reset(options={"task": "test-0"})
    world.step(written("turn", dial=1, to=1))
    # TRL asks for the reward of every rollout, whatever ended it.
    assert world.step("nonsense")[2:] == (False, True, {"valid": False, "success": True, "score": 1.0})


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("", "not a call"),
        ("open()", "not a call"),
        ("[1]", "A call has the form"),
        ('{"tool": "open", "arguments": {}}', "A call has the form"),
        (written("opn"), "did you mean 'open'?"),
        (written("get_reward"), "There is no tool 'get_reward'"),
        (written("_secret"), "There is no tool"),
        ('{"tool": "open", "args": [1]}', "has to be an object"),
        (written("turn", dial=0), "turn: 'to': Field required"),
        (written("turn", dial=7, to=1), "turn: 'dial'"),
        (written("turn", dial=0, to=1, by="hand"), "turn: 'by': Extra inputs"),
        (written("finish", now=True), "finish: it takes no arguments"),
        (written("turn", dial=0, to=9), "turn: a dial has no 9"),
    ],
)
def test_calls_that_are_wrong_are_invalid_actions_and_say_why(action: str, told: str) -> None:
    world = vault()
    world.reset(options={"task": "test-0"})
    observation, _, terminated, _, info = world.step(action)
    assert told in observation and info == {"valid": False} and not terminated


def test_an_exception_is_an_error_of_the_world_unless_it_is_a_refusal() -> None:
    world = vault()
    world.reset(options={"task": "test-0"})
    with pytest.raises(OSError, match="no fire"):
        world.step(written("burn", where="Rome"))
    as_trl_does = vault(refusals=["Exception"])
    as_trl_does.reset(options={"task": "test-0"})
    assert as_trl_does.step(written("burn", where="Rome"))[0] == "burn: no fire in Rome"


class Endless(Vault):
    """Its reward is no number."""

    def get_reward(self) -> float:
        return float("nan")


def test_a_reward_that_is_no_number_is_an_error() -> None:
    world = vault(factory=f"{__name__}:Endless")
    world.reset(options={"task": "test-0"})
    with pytest.raises(WorldBroke, match="finite"):
        world.step(written("finish"))


def test_rows_are_tasks_and_their_prompt_stands_before_what_reset_says(tmp_path: Path) -> None:
    rows = [{"code": [i % 3, i // 3], "prompt": [{"role": "user", "content": f"Open vault {i}. "}]} for i in range(9)]
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    train.write_text("\n".join(json.dumps(row) for row in [*rows[:6], rows[0]]))
    test.write_text("\n\n".join(json.dumps(row) for row in rows[6:]))
    world = vault(rows={"train": train, "test": test}, train_tasks=600)
    assert [len(world.tasks(split)) for split in SPLITS] == [5, 1, 3]
    first, _ = world.reset(options={"task": world.tasks("test")[1].id})
    assert first.startswith("Open vault 7. The vault has 2 dials.")
    world.step(written("turn", dial=0, to=1))
    world.step(written("turn", dial=1, to=2))
    assert world.step(written("open"))[4]["success"] is True
    test.write_text(json.dumps(rows[2]))
    with pytest.raises(BadInput, match="both train and test"):
        vault(rows={"train": train, "test": test}, train_tasks=600).tasks("train")
    test.write_text("{broken")
    with pytest.raises(BadInput, match="line 1, is not JSON"):
        vault(rows={"train": train, "test": test}, train_tasks=600).tasks("train")
    for wrong in ({"rows": {"train": train}}, {"rows": {"train": train, "test": test}, "train_tasks": 5}):
        with pytest.raises(BadInput):
            vault(**wrong)


class Untyped(Vault):
    """A tool without type hints."""

    def push(self, hard):  # type: ignore[no-untyped-def]
        """Push."""


class Undescribed(Vault):
    """A tool without a docstring."""

    def push(self, hard: bool) -> None: ...


class Starred(Vault):
    """A tool that takes anything."""

    def push(self, **anything: int) -> None:
        """Push."""


class Foreign(Vault):
    """A tool whose argument is no JSON."""

    def push(self, hard: random.Random) -> None:
        """Push."""


class Hopeless:
    """No reward."""

    def reset(self) -> None: ...


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [
        ("Untyped", "no type hint for 'hard'"),
        ("Undescribed", "no docstring"),
        ("Starred", "a name of its own"),
        ("Foreign", "cannot be written in JSON"),
        ("Hopeless", "has no method 'get_reward'"),
        ("Missing", "there is no"),
    ],
)
def test_a_class_that_is_not_of_the_shape_is_refused_with_a_sentence(factory: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        _ = vault(factory=f"{__name__}:{factory}").rules
    with pytest.raises(BadInput, match="factory_options"):
        _ = vault(factory_options={"colour": 1}).rules


def test_guesses_cover_what_can_be_guessed_and_a_floor_needs_some() -> None:
    tools = [method_tool(getattr(Vault(), name)) for name in ("turn", "open", "burn")]
    calls = {guess(tools, place / 997) for place in range(997)}
    assert {json.loads(call)["tool"] for call in calls if call} == {"turn", "open"}
    assert {tuple(json.loads(c)["args"].values()) for c in calls if c and "turn" in c} == {
        (dial, to) for dial in (0, 1) for to in range(10)
    }
    assert guess(tools[2:], 0.5) is None
    solved = floor(vault(), vault().tasks("test")[:20])
    assert 0 < solved < 0.6
    words = vault(actions=[written("finish")])
    assert words.trivial(0.99) == written("finish")


# The reverse


def test_our_worlds_have_the_shape_that_trl_looks_for() -> None:
    instance = MazeTools()
    # What GRPOTrainer of TRL 1.16 does with an instance.
    members = [name for name, _ in inspect.getmembers(type(instance), predicate=inspect.isfunction)]
    assert "reset" in members and "get_reward" in members
    assert [name for name in members if not name.startswith("_") and name not in ("reset", "get_reward")] == ["act"]
    assert type(instance).__name__ == "Maze"


def test_transformers_makes_a_schema_of_our_tool() -> None:
    pytest.importorskip("transformers")
    from transformers.utils import get_json_schema

    function = get_json_schema(MazeTools().act)["function"]
    assert function["name"] == "act" and function["parameters"]["required"] == ["action"]
    assert function["parameters"]["properties"]["action"]["type"] == "string"


def test_a_rollout_through_tools_is_the_same_episode_as_in_the_world() -> None:
    row = task_rows("maze", "test")[3]
    world, tools = Maze(), MazeTools()
    first, _ = world.reset(options={"task": row["task"]})
    assert tools.reset(**row) == first and tools.get_reward() == 0.0
    assert world.rules in row["prompt"][0]["content"]
    over = False
    while not over:
        action = world.expert()[1]
        seen, _, terminated, truncated, info = world.step(action)
        over = terminated or truncated
        assert tools.act(action) == seen and tools.done is over
    assert tools.get_reward() == info["score"] == 1.0
    with pytest.raises(ValueError, match="over"):
        tools.act("move up")
    tools.reset(**row)
    assert tools.get_reward() == 0.0 and not tools.done


def test_a_world_that_became_tools_can_become_a_world_again() -> None:
    plain = Maze()
    again = ToolClass(factory=f"{__name__}:MazeTools", turn_limit=plain.turn_limit)
    task = plain.tasks("train")[0].id
    first, _ = again.reset(options={"task": "train-0"})
    assert again._object._world.tasks("train") == plain.tasks("train") and first
    again._object.reset(task=task)
    plain.reset(options={"task": task})
    while True:
        action = plain.expert()[1]
        expected = plain.step(action)
        seen = again.step(written("act", action=action))
        assert (seen[0], seen[2]) == (expected[0], expected[2])
        if seen[2]:
            break
    assert seen[4]["success"] is True


def test_options_that_do_not_fit_are_told_when_the_class_is_made() -> None:
    with pytest.raises(BadInput):
        as_tools("maze", size="huge")
    with pytest.raises(BadInput, match="unknown world"):
        as_tools("mase")
