"""Made tasks: never a held-out one by content, solved by what reached them, and what the checker says of broken ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fedse.clients.site import Origin, Place
from fedse.errors import BadInput
from fedse.plugins import resolve
from fedse.types import Split, Task
from fedse.worlds.answers import varied
from fedse.worlds.babyai import BabyAI
from fedse.worlds.babyai.made import words
from fedse.worlds.check import check
from fedse.worlds.made import base_of, change_of, made_id
from fedse.worlds.maze import Maze
from fedse.worlds.splits import assigned_split
from fedse.worlds.textcraft import TextCraft
from fedse.worlds.training_part import TrainingPart
from fedse.worlds.transcripts import sample
from fedse.worlds.webshop import WebShop
from fedse.worlds.wordle import Wordle
from fedse.worlds.world import World

HELD_OUT: tuple[Split, ...] = ("validation", "test")


def contents(world: World, content: Callable[[str], Any]) -> set[Any]:
    return {content(task.id) for split in HELD_OUT for task in world.tasks(split)}


def variations(world: World, tasks: int, seeds: int) -> set[str]:
    found = (world.vary(task.id, seed) for task in sample(world.tasks("train"), tasks) for seed in range(seeds))
    return {task.id for task in found if task is not None}


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 5])
def test_made_mazes_have_walls_of_no_held_out_maze(size: int) -> None:
    world = Maze(size=size)

    def walls(task: str) -> tuple[str, ...]:
        picture = world.puzzle(task).layout.picture
        # Up to size 4 turned and mirrored mazes are one.
        turned = [picture]
        for _ in range(3):
            turned.append(tuple("".join(row) for row in zip(*turned[-1][::-1], strict=True)))
        return min([*turned, *(tuple(row[::-1] for row in one) for one in turned)]) if size == 4 else picture

    made = variations(world, 350, 3)
    assert len(made) > 1000
    assert {walls(task) for task in made}.isdisjoint(contents(world, walls))
    assert all((world.puzzle(task).start, world.puzzle(task).goal) != _ends(world, base_of(task)) for task in made)


def _ends(world: Maze, task: str) -> tuple[Any, Any]:
    return world.puzzle(task).start, world.puzzle(task).goal


@pytest.mark.slow
def test_made_games_list_no_word_of_a_held_out_game() -> None:
    world = Wordle()
    words = {word for split in HELD_OUT for task in world.tasks(split) for word in world.game(task.id).words}
    made = variations(world, 80, 14)
    assert len(made) > 700
    assert all(words.isdisjoint(world.game(task).words) for task in made)
    assert all(world.game(task).hidden == change_of(task) != world.game(base_of(task)).hidden for task in made)


def test_made_goals_are_no_held_out_goals_whoever_asks_for_them() -> None:
    world = TextCraft()
    goals = contents(world, lambda task: world.offer(task).goal)
    tried = accepted = 0
    for task in world.tasks("train")[:300]:
        for recipe in world.offer(task.id).recipes:
            tried += 1
            try:
                made = world.made(made_id(task.id, recipe.makes.replace(" ", "_")))
            except BadInput:
                continue
            accepted += 1
            assert world.offer(made.id).goal not in goals
    assert tried > 2000 and 200 < accepted < tried / 2


@pytest.mark.slow
def test_made_missions_are_no_held_out_missions_of_the_same_rooms() -> None:
    world = BabyAI(levels=["GoToObjS6", "PickupDistDebug"], train_tasks=112)

    def content(task: str) -> Any:
        layout = world.layout(task)
        return layout.cells, layout.things, layout.doors, layout.start, layout.facing, layout.mission

    tasks = [task.id for task in world.tasks("train")]
    asked = [made_id(task, word) for task in tasks for word in words(world.layout(task))]
    made = [task for task in asked if _is_accepted(world, task)]
    assert len(asked) > 1000 and len(made) > 200
    held_out = {content(task.id) for split in HELD_OUT for task in sample(world.tasks(split), 40)}
    assert {content(task) for task in made}.isdisjoint(held_out)
    # Rooms hardly ever meet twice, so this alone would find nothing: the hash of every one is that of a training task.
    assert {assigned_split(world.layout(task).key()) for task in made} == {"train"}
    kept = len([task for task in made if "~go_to" in task]) / len([task for task in asked if "~go_to" in task])
    assert 0.4 < kept < 0.8, "of the missions that make sense about six in ten"


def test_missions_are_worded_as_minigrid_words_them() -> None:
    """The hash that decides about splits has the words in it."""
    world = BabyAI(levels=["PickupLoc", "GoToObjS6", "OpenDoorLoc", "PutNextLocalS6N4"], train_tasks=40)
    for task in world.tasks("train"):
        world.reset(options={"task": task.id})
        assert world.mission() == world.layout(task.id).mission


def _is_accepted(world: World, task: str) -> bool:
    try:
        return bool(world.made(task))
    except BadInput:
        return False


def test_made_wishes_are_for_no_held_out_product_and_read_like_no_held_out_wish() -> None:
    world = WebShop()
    families = contents(world, lambda task: world.goal(task).product.family)
    wishes = contents(world, lambda task: world.goal(task).instruction)
    made = [
        f"{world.tasks('train')[0].id}~{product.id}{'._' * len(product.options)}" for product in world.shop.products
    ]
    accepted = [task for task in made if _is_accepted(world, task)]
    accepted += variations(world, 600, 1)
    assert len(made) > 1400 and len(accepted) > 1000
    for task in accepted:
        assert world.goal(task).product.family not in families
        assert world.goal(task).instruction not in wishes


def test_what_was_reached_carries_its_goal_and_ends_where_it_was_reached() -> None:
    world = Maze()
    task = next(task for task in world.tasks("train") if task.category == "long")
    world.reset(options={"task": task.id})
    actions = [world.expert()[1]]
    world.step(actions[0])
    assert world.achieved() is None, "one step is no task"
    for _ in range(2):
        actions.append(world.expert()[1])
        world.step(actions[-1])
    made = world.achieved()
    assert made is not None and made.category == "short"
    observation, _ = world.reset(options={"task": made.id})
    row, column = world.puzzle(made.id).goal
    assert re.search(rf"goal[^.]*{row}, *{column}", observation), observation
    *_, done, _, info = [world.step(action) for action in actions][-1]
    assert done and info["success"]


def test_things_of_different_depth_can_be_achieved_with_the_same_recipes() -> None:
    world = TextCraft()
    for task in sample(world.tasks("train"), 60):
        world.reset(options={"task": task.id})
        depths = []
        over = False
        while not over:
            *_, over, _, info = world.step(world.expert()[1])
            made = None if over else world.achieved()
            if made is not None:
                assert world.offer(made.id).recipes == world.offer(task.id).recipes
                depths.append(int(made.category.removeprefix("depth")))
        assert info["success"] and depths == sorted(depths)


@pytest.mark.parametrize("name", ["maze", "wordle", "textcraft", "babyai", "webshop"])
def test_all_worlds_keep_the_promise(name: str) -> None:
    (finding,) = check(lambda: resolve("world", name)(), only=["made tasks"])
    assert finding.passed, finding.detail
    made, *joined, reached = re.findall(r"\d+", finding.detail)
    assert bool(joined) == (name == "babyai") and all(int(count) > 3 for count in joined)
    assert int(made) >= 12 and (int(reached) > 0) == (name not in ("wordle", "webshop"))
    (original,) = check(lambda: resolve("world", name)(mode="original"), only=["made tasks"])
    assert original.passed and original.detail == "this world makes none"


class Listed(Maze):
    def vary(self, task: str, seed: int) -> Task:
        self.training_base(task)
        return self.tasks("train")[seed]


class Careless(Maze):
    """Makes tasks of whatever it is given."""

    def training_base(self, task: str) -> str:
        return base_of(task)


class Boastful(Maze):
    def achieved(self) -> Task | None:
        return self.vary(self._task, 0)


class Leaking(Maze):
    """Its made tasks are those of the test."""

    def begin(self, task: str) -> str:
        return super().begin(self.tasks("test")[0].id if "~" in task else task)


class Restless(Maze):
    def achieved(self) -> Task | None:
        self._trail.append(self._cell)
        return super().achieved()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Listed, "does not name the task it was made of"),
        (Careless, "vary() of a validation task"),
        (Boastful, "the same actions do not solve it"),
        (Leaking, "do not solve it"),
        (Restless, "changes the state"),
    ],
)
def test_the_checker_names_what_is_wrong_with_made_tasks(broken: type[Maze], said: str) -> None:
    (finding,) = check(broken, only=["made tasks"])
    assert not finding.passed and said in finding.detail


def test_a_made_task_that_begins_like_a_held_out_one_is_found() -> None:
    class Leak(Leaking):
        def achieved(self) -> Task | None:
            return None

    (finding,) = check(Leak, only=["made tasks"])
    assert not finding.passed and "is a task of validation or test" in finding.detail


def test_a_site_with_a_part_of_the_tasks_explores_what_is_made_of_them_alone() -> None:
    whole, world = Wordle(), Wordle()
    world.training_part = TrainingPart(part=1, of=2)
    place = Place("wordle", lambda: world, Origin("east", "wordle"))
    made = variations(whole, 40, 4)
    own = {task for task in made if place.may_explore(task)}
    assert 0 < len(own) < len(made)
    for task in own:
        assert base_of(task) in place.training
        assert world.training_part.among(world, [Task(task)])
    drawn = [varied(world, base_of(task), seed) for task in made for seed in range(4)]
    assert any(task is None for task in drawn) and any(drawn)
    assert all(world.training_part.among(world, [task]) for task in drawn if task is not None)
    assert not place.may_explore("test-early-0~about") and not place.may_explore("train-early-0~zzzzz")
