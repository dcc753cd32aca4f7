"""Help in three strengths: the strongest alone solves every task, and asking for help changes nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.plugins import resolve
from fedse.worlds.check import check
from fedse.worlds.hints import LEVELS
from fedse.worlds.maze import Maze
from fedse.worlds.transcripts import sample
from fedse.worlds.wordle import Wordle
from fedse.worlds.world import World

NAMES = ("maze", "wordle", "textcraft", "babyai", "webshop")


def followed(world: World, task: str) -> bool:
    """Whether whoever does what the strongest hint says, and nothing else, succeeds."""
    world.reset(options={"task": task})
    while True:
        _, _, terminated, truncated, info = world.step(world.hint(3).removeprefix("A good next action is: "))
        if terminated or truncated:
            return bool(info["success"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clean", "original"])
@pytest.mark.parametrize("name", NAMES)
def test_all_worlds_keep_the_promise_and_their_strongest_hint_solves_tasks(name: str, mode: str) -> None:
    def make() -> World:
        return resolve("world", name)(mode=mode)

    (finding,) = check(make, only=["hints"])
    assert finding.passed, finding.detail
    assert re.match(r"\d\d+ hints", finding.detail)
    world = make()
    assert all(followed(world, task.id) for task in sample(world.tasks("train"), 6))


@pytest.mark.parametrize("directions", ["moves", "compass"])
def test_the_aim_in_a_maze_tells_as_many_steps_as_the_way_then_takes(directions: str) -> None:
    world = Maze(directions=directions)
    for task in sample(world.tasks("train"), 8):
        world.reset(options={"task": task.id})
        told = int(re.findall(r"takes (\d+) step", world.hint(2))[0])
        over, taken = False, 0
        while not over:
            _, _, over, _, _ = world.step(world.expert()[1])
            taken += 1
        assert told == taken


def test_the_aim_in_wordle_always_names_the_hidden_word() -> None:
    world = Wordle()
    for task in sample(world.tasks("train"), 10):
        hidden = world.game(task.id).hidden
        world.reset(options={"task": task.id})
        world.step(next(word for word in world.game(task.id).words if word != hidden))
        assert hidden in re.findall(r"[a-z]{5}", world.hint(2).partition(":")[2])


class Pushy(Maze):
    def hint(self, level: int) -> str:
        self.act(self.legal_actions()[0])
        return super().hint(level)


class Monotonous(Maze):
    def hint(self, level: int) -> str:
        return super().hint(min(level, 2))


class Unlimited(Maze):
    def hint(self, level: int) -> str:
        return super().hint(min(max(level, 1), 3))


class Secretive(Maze):
    has_hints = False


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Pushy, "changes the state"),
        (Monotonous, "two levels give the same hint"),
        (Unlimited, "level 0"),
        (Secretive, "hint() of a world without hints"),
    ],
)
def test_the_checker_names_what_is_wrong_with_hints(broken: type[Maze], said: str) -> None:
    (finding,) = check(broken, only=["hints"])
    assert not finding.passed and said in finding.detail


def test_a_world_has_no_hints_unless_it_says_so() -> None:
    class Plain(World):
        name = "plain"

        def begin(self, task: str) -> str:
            return task

    world: Any = Plain()
    assert not world.has_hints
    for level in LEVELS:
        with pytest.raises(BadInput, match="gives no hints"):
            world.hint(level)
