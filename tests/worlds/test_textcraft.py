"""The TextCraft world: recipes, splits, texts and every knob, with the recipes that ship."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor
from fedse.worlds.textcraft import TextCraft
from fedse.worlds.textcraft.items import KINDS, workshop
from fedse.worlds.textcraft.plans import shortest_plan
from fedse.worlds.textcraft.tasks import goal_split

BRIEF = {"rules": "brief", "observation_length": "brief"}


def begin(world: TextCraft, task: str) -> str:
    return world.reset(options={"task": task})[0]


def goals(world: TextCraft, split: str) -> set[str]:
    return {world.offer(task.id).goal for task in world.tasks(split)}


def expert_episode(world: TextCraft, task: str) -> tuple[list[tuple[str, str]], int]:
    """What the expert thought and did, and the number of characters of the whole episode."""
    characters = len(world.rules) + len(begin(world, task))
    moves: list[tuple[str, str]] = []
    over = False
    while not over:
        thought, action = world.expert()
        moves.append((thought, action))
        observation, _, terminated, truncated, _ = world.step(action)
        characters += len(f"Thought: {thought}\nAction: {action}{observation}")
        over = terminated or truncated
    return moves, characters


def test_the_built_in_recipes() -> None:
    book = workshop()
    assert Counter(book.depths[item] for item in book.makers) == {1: 48, 2: 128, 3: 216, 4: 77}
    # No line is lost to a cycle, and nothing is a kind and an item at once.
    assert len(book.recipes) == 471
    assert not set(KINDS) & book.items
    assert all(count >= 1 for recipe in book.recipes for _, count in recipe.needs)
    assert all(book.members(name)[0] in book.items for recipe in book.recipes for name, _ in recipe.needs)


def test_a_brief_episode_word_for_word() -> None:
    """Written down once: a change here changes every published number, so `version` must rise with it."""
    world = TextCraft(**BRIEF)
    assert begin(world, "test-depth3-3") == PINNED
    moves, _ = expert_episode(world, "test-depth3-3")
    assert moves == [
        ("birch planks needs 1 birch log.", "get 1 birch log"),
        ("birch chair needs 2 birch planks.", "craft 4 birch planks using 1 birch log"),
        ("birch chair needs 2 stick.", "craft 4 stick using 2 birch planks"),
        ("All there for birch chair.", "craft 1 birch chair using 2 birch planks, 2 stick"),
    ]


PINNED = """\
craft 2 birch bowl using 1 birch planks
craft 4 oak planks using 1 oak log
craft 4 birch planks using 1 birch log
craft 1 iron axe using 2 iron ingot, 2 stick
craft 4 pine planks using 1 pine log
craft 1 birch bed using 3 birch planks, 1 mattress
craft 4 stick using 2 planks
craft 1 birch chair using 2 birch planks, 2 stick
craft 1 birch barrel using 4 birch planks, 1 iron hoop
planks: oak planks, birch planks, pine planks
goal: birch chair"""


def test_the_answers_to_good_and_bad_actions() -> None:
    world = TextCraft(turn_limit=30)
    begin(world, "test-depth3-3")
    for action, answer, valid in (
        ("", "That is not an action.", False),
        ("get birch log", "That is not an action.", False),
        ("get 0 birch log", "That is not an action.", False),
        ("get " + "9" * 5000 + " birch log", "That is not an action.", False),
        ("craft 4 stick using planks", "That is not an action.", False),
        ("get 1 unicorn", "There is no such item.", False),
        ("get 1 gold crown", "There is no such item.", False),
        ("get 2 planks", "The name planks stands for a kind of thing.", False),
        ("craft 4 stick using 2 planks", "The name planks stands for a kind of thing.", False),
        ("get 1 stick", "There is no stick to be found; it has to be made.", True),
        ("inventory", "You carry nothing.", True),
        ("Get 2 birch log.", "You got 2 birch log. You carry 2 birch log.", True),
        ("craft 4 stick using 2 birch planks", "You cannot make stick yet: you lack 2 birch planks.", True),
        ("craft 4 birch planks using 2 birch log", "No listed recipe makes birch planks from exactly", False),
        ("craft 8 birch planks using 1 birch log", "No listed recipe makes birch planks from exactly", False),
        (
            "craft birch planks using 1 birch log",
            "You made 4 birch planks. You carry 1 birch log, 4 birch planks.",
            True,
        ),
        ("craft 1 birch door using 4 birch planks", "No listed recipe makes birch door from exactly", False),
        (
            "craft 4 stick using 2 birch planks",
            "You made 4 stick. You carry 1 birch log, 2 birch planks, 4 stick.",
            True,
        ),
        ("inventory", "You carry 1 birch log, 2 birch planks, 4 stick.", True),
    ):
        observation, _, terminated, _, info = world.step(action)
        assert (observation.startswith(answer), info["valid"], terminated) == (True, valid, False), (
            action,
            observation,
        )
    observation, reward, terminated, _, info = world.step("craft 1 birch chair using 2 stick, 2 birch planks")
    assert (observation, reward, terminated) == ("You made 1 birch chair. The goal is reached.", 1.0, True)
    assert info["success"] is True


def test_what_no_listed_recipe_makes_can_be_fetched() -> None:
    world = TextCraft()
    begin(world, "test-depth3-3")
    # Iron ingots are made elsewhere in the book, but nothing listed here makes them.
    assert world.step("get 2 iron ingot")[0].startswith("You got 2 iron ingot.")
    for split in SPLITS:
        for task in world.tasks(split):
            offer = world.offer(task.id)
            needed = world.book.closure(offer.goal)
            assert set(needed) <= set(offer.recipes)
            assert not offer.raw & {recipe.makes for recipe in needed}


@pytest.mark.slow
def test_splits_are_disjoint_by_goal_even_between_clients() -> None:
    worlds = [TextCraft(), TextCraft(pool=7, mix=0.5, mix_seed=3, subset=0.7, subset_seed=2, turn_limit=9)]
    found = {split: set().union(*(goals(world, split) for world in worlds)) for split in SPLITS}
    assert len(found["train"]) > 250
    assert all(len(found[split]) > 80 for split in SPLITS)
    assert not found["train"] & found["test"]
    assert not found["train"] & found["validation"]
    assert not found["validation"] & found["test"]
    assert [len(worlds[0].tasks(split)) for split in SPLITS] == [600, 210, 210]


def test_categories_are_depths_and_tasks_differ() -> None:
    world = TextCraft()
    assert Counter(task.category for task in world.tasks("train")) == dict.fromkeys(
        ("depth1", "depth2", "depth3", "depth4"), 150
    )
    for split in SPLITS:
        starts = [world.offer(task.id).start for task in world.tasks(split)]
        # The few recipes around a shallow goal may be drawn and ordered alike once in a while.
        assert len(set(starts)) >= 0.99 * len(starts)
        for task in world.tasks(split):
            assert task.category == f"depth{world.book.depths[world.offer(task.id).goal]}"


@pytest.mark.slow
def test_goals_out_of_reach_are_left_out_and_the_expert_is_in_time() -> None:
    for turns in (4, 7):
        world = TextCraft(turn_limit=turns)
        lengths = {item: len_of(world, item) for item in world.book.makers}
        assert any(length > turns for length in lengths.values())
        assert all(lengths[goal] <= turns for split in SPLITS for goal in goals(world, split))
        assert set().union(*(goals(world, split) for split in ("validation", "test"))) == {
            item for item, length in lengths.items() if length <= turns and goal_split(item) != "train"
        }
        assert all(ceiling(world, world.tasks(split)) == 1 for split in SPLITS)
    with pytest.raises(BadInput, match="no goal of the train split"):
        TextCraft(shallowest=4, turn_limit=3).tasks("train")


def len_of(world: TextCraft, item: str) -> int:
    plan = shortest_plan(world.book, item)
    assert plan is not None
    return plan.length


@pytest.mark.slow
def test_floor_and_ceiling() -> None:
    world = TextCraft()
    assert 0.1 < floor(world, world.tasks("test")) < 0.3
    assert all(ceiling(world, world.tasks(split)) == 1 for split in SPLITS)


def test_the_expert_takes_the_shortest_way_and_its_thought_names_what_it_does() -> None:
    for length in ("full", "brief"):
        world = TextCraft(rules=length)
        for task in world.tasks("train")[:120]:
            moves, _ = expert_episode(world, task.id)
            goal = world.offer(task.id).goal
            assert len(moves) == len_of(world, goal)
            for thought, action in moves:
                made = action.split(" using ")[0].split(" ", 2)[2]
                assert made in thought
                assert len(thought) <= (75 if length == "brief" else 260)


def test_the_expert_goes_on_from_any_state() -> None:
    world = TextCraft()
    for task in world.tasks("train")[::20]:
        begin(world, task.id)
        for turn in range(4):
            if world.step(world.trivial(0.37 * turn % 1))[2]:
                break
        else:
            before = world.save()
            plan = shortest_plan(world.book, world.offer(task.id).goal, tuple(sorted(dict(before[2][1]).items())))
            assert plan is not None
            steps = 0
            while not world._ended:
                world.step(world.expert()[1])
                steps += 1
            assert steps == plan.length


def test_brief_episodes_are_short() -> None:
    world = TextCraft(**BRIEF)
    sizes = [expert_episode(world, task.id)[1] for task in world.tasks("test")]
    assert median(sizes) <= 1200
    assert max(sizes) <= 1850
    assert len(world.rules) <= 340 < len(TextCraft().rules)


def test_wording_knobs() -> None:
    plain, formulas, other = TextCraft(), TextCraft(listing="formulas"), TextCraft(wording="make")
    assert "2 planks -> 4 stick" in begin(formulas, "test-depth3-3")
    begin(plain, "test-depth3-3")
    assert formulas.expert() == plain.expert()
    assert "make 4 stick from 2 planks" in begin(other, "test-depth3-3")
    assert "make 4 stick from 2 oak planks" in other.rules
    assert other.expert()[1] == "take 1 birch log"
    assert other.step("get 1 birch log")[4]["valid"] is False
    assert other.step("bag")[0] == "You carry nothing."
    for world in (formulas, other):
        assert ceiling(world, world.tasks("test")[:40]) == 1


def test_made_up_names() -> None:
    plain, one, other = TextCraft(), TextCraft(names="made_up"), TextCraft(names="made_up", names_seed=1)
    texts = {begin(world, "test-depth3-3") for world in (plain, one, other)}
    assert len(texts) == 3
    assert not any(word in begin(one, "test-depth3-3") + one.rules for word in ("birch", "planks", "stick", "kite"))
    # The same puzzle under other names: as long, and with the same floor; the plain names mean nothing there.
    assert len(expert_episode(one, "test-depth3-3")[0]) == 4
    begin(one, "test-depth3-3")
    assert one.step("get 1 birch log")[4]["valid"] is False
    assert one.step("craft 4 birch planks using 1 birch log")[4]["valid"] is False
    names = one._narrator.names
    assert len(set(names.shown.values())) == len(names.shown)
    assert ceiling(one, one.tasks("test")) == 1


def test_subset_turns_crafted_things_into_raw_ones() -> None:
    whole, one, other = TextCraft(), TextCraft(subset=0.6, subset_seed=1), TextCraft(subset=0.6, subset_seed=2)
    crafted = [set(world.book.makers) for world in (whole, one, other)]
    assert crafted[1] < crafted[0]
    assert crafted[2] < crafted[0]
    assert crafted[1] != crafted[2]
    assert 0.5 < len(crafted[1]) / len(crafted[0]) < 0.7
    item = min(crafted[0] - crafted[1])
    assert item in one.book.raw
    assert all(ceiling(world, world.tasks("test")) == 1 for world in (one, other))


def test_distractors_and_depths() -> None:
    for number in (0, 9):
        world = TextCraft(distractors=number)
        for task in world.tasks("test")[:60]:
            offer = world.offer(task.id)
            assert len(offer.recipes) == len(set(offer.recipes)) == number + len(world.book.closure(offer.goal))
    deep = TextCraft(shallowest=3, deepest=3)
    assert {task.category for split in SPLITS for task in deep.tasks(split)} == {"depth3"}


def test_mix_and_pool_change_the_training_tasks_only() -> None:
    even, skewed, other = TextCraft(), TextCraft(mix=0.3, mix_seed=1), TextCraft(mix=0.3, mix_seed=2)
    counts = [Counter(task.category for task in world.tasks("train")) for world in (even, skewed, other)]
    assert len({tuple(sorted(count.items())) for count in counts}) == 3
    assert all(sum(count.values()) == 600 for count in counts)
    assert even.tasks("test") == skewed.tasks("test")
    assert len(TextCraft(train_tasks=50).tasks("train")) == 50
    pooled = TextCraft(pool=1)
    same = sum(begin(even, f"train-depth3-{n}") == begin(pooled, f"train-depth3-{n}") for n in range(100))
    assert same <= 2
    assert begin(even, "test-depth3-3") == begin(pooled, "test-depth3-3")


def test_options_that_cannot_work_are_refused() -> None:
    for wrong in (
        {"ids": "ids.json"},
        {"mix_seed": 1},
        {"names_seed": 1},
        {"subset_seed": 1},
        {"subset": 0},
        {"shallowest": 3, "deepest": 2},
        {"book": "textcraft", "recipes": "folder"},
        {"mode": "original", "book": "workshop"},
        {"mode": "original", "distractors": 3},
        {"mode": "original", "names": "made_up"},
        {"mode": "original", "observation_length": "brief"},
    ):
        with pytest.raises(BadInput):
            TextCraft(**wrong)
    with pytest.raises(BadInput, match="there is no task 'test-depth1-999'"):
        begin(TextCraft(), "test-depth1-999")


def test_the_drawing_shows_goal_bag_and_what_can_be_made() -> None:
    world = TextCraft()
    begin(world, "test-depth3-3")
    assert "birch chair" in world.drawing()
    assert "empty" in world.drawing()
    world.step("get 1 birch log")
    lit = [line for line in world.drawing().splitlines() if "▶" in line]
    assert len(lit) == 1
    assert "craft 4 birch planks using 1 birch log" in lit[0]
    assert "1 birch log" in world.drawing().splitlines()[-1]


@pytest.mark.parametrize("options", [{}, {**BRIEF, "names": "made_up", "wording": "make", "subset": 0.8}])
@pytest.mark.slow
def test_the_checker_passes(options: dict[str, str]) -> None:
    assert [finding for finding in check(lambda: TextCraft(**options)) if not finding.passed] == []
