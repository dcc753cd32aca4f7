"""Canaries: episodes in a world's grammar with invented names, planted by a fair coin, the same whenever they are made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.models.chat import ByteChat
from fedse.starts.canaries import CATEGORY, Canaries
from fedse.starts.demonstrations import Demonstrations
from fedse.worlds.maze import Maze
from fedse.worlds.textcraft import TextCraft
from fedse.worlds.webshop import WebShop
from fedse.worlds.wordle import Wordle

CHAT = ByteChat()
SHORT = {"rules": "bare", "observation_length": "brief"}
CRAFT = TextCraft(**SHORT, shallowest=2, deepest=2)


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower()))


def test_names_are_invented_the_grammar_stays_and_no_reply_can_be_copied() -> None:
    made = Canaries(3, 40).canaries("c", "textcraft", CRAFT, CHAT, 0)
    shown = Demonstrations(200).trajectories("c", "textcraft", CRAFT, CHAT, 0)
    known = {word for item in shown for step in item.steps for word in words(step.observation)}
    for one in made:
        said = [step.action for step in one.trajectory.steps]
        assert all(re.fullmatch(r"(get \d+ .+|craft \d+ .+ using .+|inventory)", action) for action in said)
        seen = words(" ".join(step.observation for step in one.trajectory.steps))
        invented = words(" ".join(said)) - known
        assert invented and not invented & seen
    assert len({one.trajectory.token_ids for one in made}) == 40


@pytest.mark.slow
def test_the_coin_is_fair_and_the_seed_decides() -> None:
    start = Canaries(3, 160)
    made = start.canaries("c", "textcraft", CRAFT, CHAT, 5)
    assert 55 < sum(one.planted for one in made) < 105
    assert made == start.canaries("c", "textcraft", CRAFT, CHAT, 5)
    assert made != start.canaries("c", "textcraft", CRAFT, CHAT, 6)
    begun = start.trajectories("c", "textcraft", CRAFT, CHAT, 5)
    shown = Demonstrations(3).trajectories("c", "textcraft", CRAFT, CHAT, 5)
    assert begun == [*shown, *(one.trajectory for one in made if one.planted)]
    assert {item.category for item in begun[len(shown) :]} == {CATEGORY}


@pytest.mark.slow
@pytest.mark.parametrize("world", [WebShop(**SHORT), Wordle()], ids=["webshop", "wordle"])
def test_other_worlds_have_names_too(world: Any) -> None:
    made = Canaries(3, 20).canaries("c", world.name, world, CHAT, 0)
    assert len({one.trajectory.token_ids for one in made}) == 20


def test_a_world_without_names_is_refused_and_a_run_with_canaries_says_so(tiny: Any) -> None:
    with pytest.raises(BadInput, match="the agent uses no names in world 'maze' of client 'c'"):
        Canaries(3, 20).check("c", "maze", Maze(**SHORT), tiny)
    (warning,) = Canaries(3, 20).check("c", "textcraft", CRAFT, tiny)
    assert warning.kind == "canaries" and "do not use its adapter" in warning.message
