"""BabyAI's own rooms against minigrid, which they stand in for."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("minigrid")

import gymnasium
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX
from minigrid.utils.baby_ai_bot import BabyAIBot

from fedse.worlds.babyai.goals import CONTINUE, NOTHING, SUCCESS, Clause, clauses
from fedse.worlds.babyai.levels import LEVELS, generate, make, read
from fedse.worlds.babyai.rooms import EMPTY, WALL, Room, look
from fedse.worlds.babyai.words import WORDINGS


def minigrid_env(level: str, seed: int) -> Any:
    version = "v1" if level == "GoToObjS6" else "v0"
    with contextlib.redirect_stdout(io.StringIO()):
        env = gymnasium.make(f"BabyAI-{level}-{version}", disable_env_checker=True).unwrapped
        env.reset(seed=seed)
    return env


def seen_by_minigrid(env: Any) -> set[tuple[int, ...]]:
    image = env.gen_obs()["image"]
    return {
        (6 - row, column - 3, *(int(value) for value in image[column, row]))
        for column in range(7)
        for row in range(7)
        if (column, row) != (3, 6) and image[column, row, 0] != OBJECT_TO_IDX["unseen"]
    }


def seen_here(room: Room) -> set[tuple[int, ...]]:
    found = set()
    for ahead, right, place, content in look(room, 7):
        if place == room.at:
            continue
        if content == EMPTY:
            code = (OBJECT_TO_IDX["empty"], 0, 0)
        elif content == WALL:
            code = (OBJECT_TO_IDX["wall"], COLOR_TO_IDX["grey"], 0)
        else:
            thing = room.layout.things[content]
            code = (OBJECT_TO_IDX[thing.kind], COLOR_TO_IDX[thing.color], room.doors[content])
        found.add((ahead, right, *code))
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_every_step_does_what_minigrid_does(level: str) -> None:
    for seed in (3, 4):
        env, layout = minigrid_env(level, seed), generate(level, seed)
        assert layout.key() == read(env, level).key()
        assert WORDINGS["plain"].mission(layout.goal, with_order=True) == layout.mission == env.mission
        room = Room(layout, mended=False)
        draws = np.random.default_rng(seed)
        for _ in range(60):
            assert seen_here(room) == seen_by_minigrid(env)
            action = int(draws.choice([0, 1, 2, 2, 2, 3, 4, 5]))
            _, reward, terminated, _, _ = env.step(action)
            verdict = room.step(action)
            assert terminated == (verdict != CONTINUE)
            assert float(reward) == pytest.approx(room.reward() if verdict == SUCCESS else 0)
            assert (env.carrying is None) == (room.held == NOTHING)


@pytest.mark.parametrize(
    "level", ["GoToSeqS5R2", "PickupLoc", "PutNextLocalS6N4", "UnlockLocalDist", "BlockedUnlockPickup", "MiniBossLevel"]
)
def test_what_minigrids_bot_does_succeeds_here_too(level: str) -> None:
    for seed in range(2):
        env = minigrid_env(level, seed)
        room, bot, action, verdict = Room(generate(level, seed), mended=False), BabyAIBot(env), None, CONTINUE
        for _ in range(env.max_steps):
            action = bot.replan(action)
            _, reward, terminated, _, _ = env.step(action)
            verdict = room.step(int(action))
            assert terminated == (verdict != CONTINUE)
            if terminated:
                break
        assert verdict == SUCCESS
        assert float(reward) == pytest.approx(room.reward())


def test_nothing_is_printed_where_minigrid_reports_rejections(capsys: pytest.CaptureFixture[str]) -> None:
    env = gymnasium.make("BabyAI-MiniBossLevel-v0", disable_env_checker=True).unwrapped
    for seed in range(30):
        env.reset(seed=seed)
    assert "rejected" in capsys.readouterr().out
    for seed in range(30):
        generate("MiniBossLevel", seed)
    assert capsys.readouterr() == ("", "")


def test_a_strict_order_can_be_met_once_mended() -> None:
    layout = next(
        found for seed in range(20) if len(clauses((found := generate("OpenDoorsOrderN4Debug", seed)).goal)) == 2
    )
    first = clauses(layout.goal)[0]
    assert isinstance(first, Clause)
    assert first.strict
    verdicts = []
    for mended in (False, True):
        room = Room(layout, mended)
        door = room.places()[next(iter(first.things))]
        way = next(way for way in range(4) if room.cells[door - room.ways[way]] == EMPTY)
        room.at, room.facing = door - room.ways[way], way
        verdicts.append(room.step(5))
    assert verdicts[0] not in (CONTINUE, SUCCESS)
    assert verdicts[1] == CONTINUE


def test_the_generator_leaves_minigrid_as_it_was() -> None:
    make("GoToObjS6")
    other = gymnasium.make("BabyAI-GoToObjS6-v1", disable_env_checker=True).unwrapped
    assert "image" in other.reset(seed=1)[0]
