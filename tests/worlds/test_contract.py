"""A contract: what breaks it never reaches the world, whatever an agent says."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedse import run
from fedse.errors import BadInput
from fedse.experiments.options import Experiment
from fedse.worlds.contract import REFUSED, ContractOptions, UnderContract
from fedse.worlds.maze import Maze
from fedse.worlds.world import World

MOVES = ("move up", "move down", "move left", "move right")


class Heard(Maze):
    """A maze that writes down what it is told to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.heard: list[str] = []

    def act(self, action: str) -> Any:
        self.heard.append(action)
        return super().act(action)


def made(**contract: Any) -> tuple[UnderContract, Heard]:
    world = Heard(turn_limit=6)
    return UnderContract(world, ContractOptions(**contract)), world


@pytest.mark.parametrize("fallback", [None, "move down"])
def test_no_broken_action_reaches_the_world_whatever_the_agent_says(fallback: str | None) -> None:
    guarded, world = made(forbid=["up", r"^$"], fallback=fallback)
    draw, refused = random.Random(7), 0
    for task in world.tasks("train")[:30]:
        guarded.reset(options={"task": task.id})
        over = False
        while not over:
            said = draw.choice([*MOVES, "MOVE UP", "move  up", "", "sing"])
            before = len(world.heard)
            observation, _, terminated, truncated, info = guarded.step(said)
            over = terminated or truncated
            refused += observation.startswith(REFUSED)
            if "up" in said.lower() or not said:
                assert info["valid"] is False and world.heard[before:] in ([], [fallback])
    assert refused > 20 and world.heard and all("up" not in heard.lower() and heard for heard in world.heard)


def test_the_agent_is_asked_again_and_then_the_fallback_acts_which_is_no_success() -> None:
    guarded, world = made(forbid=["up"], tries=2, fallback="move down")
    task = next(task for task in world.tasks("train") if _expert_moves(world, task.id)[0] == "move down")
    first, _ = guarded.reset(options={"task": task.id})
    assert guarded.step("move up")[0] == f"{REFUSED}\n{first}" and world.heard[-1:] != ["move down"]
    told, _, _, _, info = guarded.step("move up")
    assert world.heard[-1] == "move down" and told != first and info["valid"] is False
    # The rest of the way by itself: it arrives, and it is not the agent's success.
    while not guarded._ended:
        told, _, terminated, _, info = guarded.step(guarded.expert()[1])
    assert terminated and info["success"] is False and info["score"] == 0.0
    guarded.reset(options={"task": task.id})
    while not guarded._ended:
        info = guarded.step(guarded.expert()[1])[4]
    assert info["success"] is True, "a new episode begins with nothing against it"


def _expert_moves(world: World, task: str) -> list[str]:
    world.reset(options={"task": task})
    moves, over = [], False
    while not over:
        moves.append(world.expert()[1])
        _, _, terminated, truncated, _ = world.step(moves[-1])
        over = terminated or truncated
    return moves if "move up" not in moves else [""]


def test_without_a_fallback_the_episode_ends() -> None:
    guarded, world = made(allow=[r"move (left|right)"], tries=3)
    guarded.reset(options={"task": world.tasks("train")[0].id})
    ends = [guarded.step("move down") for _ in range(3)]
    assert [end[3] for end in ends] == [False, False, True] and not world.heard
    assert ends[-1][4] == {"valid": False, "success": False, "score": 0.0}


def test_it_is_the_world_in_everything_else() -> None:
    guarded, world = made(forbid=["up"])
    task = world.tasks("train")[0].id
    assert guarded.rules == world.rules and guarded.tasks("test") == world.tasks("test") and guarded.name == "maze"
    guarded.reset(options={"task": task})
    assert set(guarded.legal_actions() or ()) == set(world.legal_actions() or ()) - {"move up"}
    nothing_left, inner = made(forbid=["move"], tries=2)
    nothing_left.reset(options={"task": task})
    inner.reset(options={"task": task})
    assert nothing_left.legal_actions() == inner.legal_actions(), "the agent has to say something, which is refused"
    saved = guarded.save()
    guarded.step("move up")
    guarded.restore(saved)
    assert guarded._broken == 0
    assert copy.deepcopy(guarded).rules == world.rules


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        ({}, "a contract that forbids nothing has no effect"),
        ({"forbid": ["("]}, "is not a regular expression"),
        ({"forbid": ["up"], "fallback": "move up"}, "breaks the contract itself"),
    ],
)
def test_a_contract_that_cannot_hold_is_refused(
    table_experiment: Callable[..., Experiment], contract: dict[str, Any], told: str
) -> None:
    clients = {"east": {"worlds": [{"name": "maze", "mode": "original"}], "contract": contract}}
    with pytest.raises(BadInput, match="clients.east.contract.*" + told.replace("(", r"\(")):
        table_experiment(clients=clients)


def test_a_run_keeps_it_at_the_site_that_has_it(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    original = {"name": "maze", "mode": "original"}
    clients = {
        "east": {"worlds": [original], "contract": {"forbid": ["^move up$"], "tries": 1}},
        "west": {"worlds": [original]},
    }
    run(table_experiment(clients=clients, rounds=1), tmp_path)
    after = {}
    for client in clients:
        lines = (tmp_path / f"table/clients/{client}/episodes/0001.jsonl").read_text().splitlines()
        said = [[step["action"] for step in json.loads(line)["steps"]] for line in lines]
        assert any("move up" in actions for actions in said)
        after[client] = sum("move up" in actions[:-1] for actions in said)
    assert after["east"] == 0 < after["west"]
