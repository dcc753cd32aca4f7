"""The BabyAI world: splits, texts, knobs, the expert, and the original's quirks."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("minigrid")

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.babyai import BabyAI
from fedse.worlds.babyai.levels import LEVELS, ORDERED_LEVELS, generate
from fedse.worlds.babyai.tasks import DEFAULT_LEVELS, turns_needed
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor
from fedse.worlds.transcripts import sample

QUICK = ["PutNextLocalS6N4", "OpenDoorsOrderN4Debug", "KeyInBox"]
"""Levels that are made in a few milliseconds."""


def begin(world: BabyAI, task: str) -> str:
    return world.reset(options={"task": task})[0]


def with_ids(tmp_path: Path, *ids: int, **options: Any) -> BabyAI:
    file = tmp_path / "ids.json"
    file.write_text(json.dumps({"test": list(ids)}))
    return BabyAI(mode="original", ids=file, **options)


IMPORTED = """
import sys
from fedse.worlds.babyai import BabyAI
world = BabyAI()
world.reset(options={"task": world.tasks("train")[0].id})
assert "networkx" not in sys.modules
import networkx
from minigrid.envs.wfc import wfcenv
assert wfcenv.nx.Graph is networkx.Graph
"""


def test_a_library_that_takes_longer_to_import_than_the_world_is_imported_when_it_is_used() -> None:
    pytest.importorskip("networkx")
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# Clean


@pytest.mark.slow
def test_sizes_floor_and_ceiling() -> None:
    world = BabyAI()
    assert [len(world.tasks(split)) for split in SPLITS] == [600, 210, 210]
    assert {task.category for task in world.tasks("test")} == set(DEFAULT_LEVELS) <= set(LEVELS)
    tasks = sample(world.tasks("test"), 64)
    assert floor(world, tasks) < 0.3
    assert ceiling(world, tasks) == 1


@pytest.mark.slow
def test_splits_are_disjoint_by_layout_even_between_clients() -> None:
    one = BabyAI(levels=["PutNextLocalS6N4", "GoToObjS6"], train_tasks=150)
    other = BabyAI(levels=["GoToObjS6"], train_tasks=150, pool=7, view=9, longest=4)
    keys = {
        split: {world.layout(task.id).key() for world in (one, other) for task in world.tasks(split)[:150]}
        for split in SPLITS
    }
    assert all(len(found) >= 150 for found in keys.values())
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]
    assert not keys["validation"] & keys["test"]


def test_a_task_id_means_the_same_rooms_everywhere() -> None:
    task = "test-PutNextLocalS6N4-1"
    assert begin(BabyAI(observation_length="brief"), task) == PINNED
    assert begin(BabyAI(observation_length="brief", levels=QUICK, rules="brief", pool=3, mix=0.5), task) == PINNED


# Written down once: a change here changes every published number, so `version` must rise with it.
PINNED = "goal: put the yellow box next to the yellow key\nsee: wall 1 ahead"


@pytest.mark.slow
def test_the_longest_and_the_shortest_are_kept() -> None:
    world = BabyAI(levels=["PutNextLocalS6N4"], shortest=5, longest=6)
    needed = [turns_needed(world.layout(task.id), 7, 20) for task in world.tasks("test")[:20]]
    assert set(needed) == {5, 6}
    with pytest.raises(BadInput, match="no task of level GoToObjS6 that the expert solves in 9 to 10 turns"):
        begin(BabyAI(levels=["GoToObjS6"], shortest=9), "test-GoToObjS6-0")


def test_mix_pool_and_levels_change_the_training_tasks() -> None:
    even, skewed = BabyAI(levels=QUICK), BabyAI(levels=QUICK, mix=0.3, mix_seed=1)
    assert Counter(task.category for task in even.tasks("train")) == dict.fromkeys(QUICK, 200)
    assert Counter(task.category for task in skewed.tasks("train")) != Counter(dict.fromkeys(QUICK, 200))
    assert even.tasks("test") == skewed.tasks("test")
    pooled = BabyAI(levels=QUICK, pool=1)
    for split, same in (("train", False), ("test", True)):
        tasks = [f"{split}-PutNextLocalS6N4-{number}" for number in range(5)]
        assert ([even.layout(task).key() for task in tasks] == [pooled.layout(task).key() for task in tasks]) is same


def test_every_level_can_be_played_clean() -> None:
    solved = {level: turns_needed(generate(level, 1), 7, 40) for level in LEVELS}
    assert [level for level, turns in solved.items() if turns is None] == []


def test_other_words_go_through_goal_rules_actions_and_thoughts() -> None:
    world = BabyAI(levels=QUICK, wording="other")
    for task in world.tasks("test")[:12]:
        texts = [world.rules, begin(world, task.id)]
        over = False
        while not over:
            thought, action = world.expert()
            observation, _, over, _, info = world.step(action)
            assert info["valid"]
            texts += [thought, action, observation]
        assert over
        words = set(" ".join(texts).lower().replace(",", " ").replace(".", " ").split())
        assert not words & {"ball", "box", "key", "door", "pick", "toggle"}
    assert world.expert()[1].split()[0] in ("rotate", "step", "walk", "take", "put", "switch", "enter", "unbar")


def test_a_wider_view_shows_more() -> None:
    far = 0
    for number in range(6):
        task = f"test-PutNextS7N4Carrying-{number}"
        narrow, wide = BabyAI(view=5, observation_length="brief"), BabyAI(view=9, observation_length="brief")
        layout = narrow.layout(task)
        assert narrow.tasks("test") == wide.tasks("test")
        begin(narrow, task)
        begin(wide, task)
        if wide.layout(task).key() == layout.key():
            far += len(wide._scene().items) - len(narrow._scene().items)
    assert far > 0


def test_order_words() -> None:
    told, untold = BabyAI(levels=["MiniBossLevel"]), BabyAI(levels=["MiniBossLevel"], order_words=False)
    goals = [
        [begin(world, f"test-MiniBossLevel-{number}").split("\n")[0] for number in range(15)]
        for world in (told, untold)
    ]
    ordered = [place for place, goal in enumerate(goals[0]) if ", then " in goal or " after you " in goal]
    assert len(ordered) >= 3
    assert not any("then" in goal or "after you" in goal for goal in goals[1])
    for place in ordered:
        assert goals[1][place] == goals[0][place].replace(", then ", " and ").replace(" after you ", " and ")


@pytest.mark.slow
def test_the_levels_that_tell_an_order() -> None:
    telling = {
        level
        for level in LEVELS
        for seed in range(12)
        if any(words in generate(level, seed).mission for words in (", then ", " after you "))
    }
    assert telling == ORDERED_LEVELS


@pytest.mark.slow
def test_brief_episodes_are_short() -> None:
    world = BabyAI(rules="brief", observation_length="brief")
    lengths = []
    for task in sample(world.tasks("test"), 64):
        size = len(world.rules) + len(begin(world, task.id))
        over = False
        while not over:
            thought, action = world.expert()
            assert len(thought) <= 80
            observation, _, over, _, _ = world.step(action)
            size += len(f"Thought: {thought}\nAction: {action}") + len(observation)
        lengths.append(size)
    assert statistics.median(lengths) < 1_300
    assert statistics.quantiles(lengths, n=10)[-1] < 1_900


def test_the_experts_thought_names_what_it_does() -> None:
    world = BabyAI(levels=QUICK)
    for task in world.tasks("train")[:45]:
        begin(world, task.id)
        over = False
        while not over:
            thought, action = world.expert()
            verb = next(verb for verb in ("open and go through", "go through", "go to", "pick up", action)
                        if action.startswith(verb))  # fmt: skip
            assert f"so I {verb}" in thought
            assert action in world.legal_actions()
            over = world.step(action)[2]


def test_refusals_say_why_and_cost_a_turn() -> None:
    world = BabyAI(levels=["KeyInBox"], observation_length="brief")
    view = begin(world, "test-KeyInBox-1").split("\n", 1)[1]
    assert view == "see: locked grey door 3 ahead 2 left; wall 3 ahead"
    for action, answer in (
        ("", "Not an action."),
        ("dance", "Not an action."),
        ("drop", "You carry nothing."),
        ("toggle", "There is nothing to toggle right ahead."),
        ("open and go through grey door", "The grey door is locked, and you do not carry its key."),
        ("pick up the locked grey door", "That cannot be done with the locked grey door."),
        ("go to purple ball", "You see no purple ball."),
    ):
        observation, _, _, _, info = world.step(action)
        assert (observation, info["valid"]) == (f"{answer} {view}", False)
    assert world.step("Go to the grey door.")[4]["valid"]
    assert world.step("go to locked grey door")[0].startswith("You already stand before the locked grey door.")
    assert world._turns == 9


def test_the_wrong_thing_ends_a_strict_task() -> None:
    world = BabyAI(levels=["PickupDistDebug"])
    for task in world.tasks("test"):
        begin(world, task.id)
        wanted = world._room.layout.goal.things
        wrong = [spelled for spelled, offer in world._scene().offers.items()
                 if offer.verb == "pick up" and offer.thing not in wanted]  # fmt: skip
        if wrong:
            observation, _, terminated, _, info = world.step(wrong[0])
            assert (terminated, info["success"]) == (True, False)
            assert "failed" in observation
            return
    raise AssertionError("no task with two things in view")


def test_options_that_cannot_work_are_refused() -> None:
    for wrong in (
        {"mode": "original", "levels": ["Open"]},
        {"mode": "original", "view": 9},
        {"mode": "original", "observation_length": "brief"},
        {"ids": "ids.json"},
        {"levels": []},
        {"levels": ["Open", "Open"]},
        {"levels": ["Opne"]},
        {"levels": ["Open"], "mix": 0.5},
        {"levels": ["Open"], "order_words": False},
        {"view": 6},
        {"longest": 30},
        {"shortest": 11},
        {"turn_limit": 5, "shortest": 6},
    ):
        with pytest.raises(BadInput):
            BabyAI(**wrong)
    with pytest.raises(BadInput, match="did you mean 'Open'"):
        BabyAI(levels=["Opne"])
    with pytest.raises(BadInput, match="there is no task 'test-Open-0'"):
        begin(BabyAI(), "test-Open-0")


def test_the_drawing_shows_the_agent_the_goal_and_the_hands() -> None:
    world = BabyAI(levels=QUICK)
    begin(world, "test-PutNextLocalS6N4-1")
    drawn = world.drawing()
    assert sum(sign in drawn for sign in "▶▼◀▲") == 1
    assert "Goal: put the yellow box next to the yellow key" in drawn
    assert drawn.endswith("You carry: nothing")


# Original


def test_original_speaks_like_the_original() -> None:
    world = BabyAI(mode="original")
    assert begin(world, "0") == ORIGINAL_FIRST
    assert world.step("fly")[0].startswith(
        "The action is not recognized. Please check valid actions.\nAvailable actions"
    )
    observation, _, terminated, _, info = world.step("Go to red ball 1!")
    if not terminated:
        observation, _, terminated, _, info = world.step(world.expert()[1])
    assert "\n The task is completed.\nAvailable actions: [" in observation
    assert (terminated, info["success"]) == (True, True)
    assert 0.5 < info["score"] < 1


ORIGINAL_FIRST = (
    "Your goal: go to the red ball\n"
    "In front of you in this room, you can see several objects: "
    "There is a grey key 1 1 steps in front of you and 1 steps to your left.  "
    "There is a grey ball 1 1 steps in front of you and 1 steps to your right.  "
    "There is a grey key 2 2 steps in front of you and 1 steps to your left.  "
    "There is a grey key 3 2 steps in front of you and 1 steps to your right.  "
    "There is a grey box 1 2 steps in front of you and 2 steps to your right.  "
    "There is a grey ball 2 5 steps in front of you and 1 steps to your right.  "
    "There is a grey key 4 4 steps in front of you and 2 steps to your right.  "
    "There is a red ball 1 4 steps in front of you and 3 steps to your right.  "
    "The room has walls around you. You are facing a wall 6 steps away. You are not carrying anything.\n"
    'Available actions: ["turn left", "turn right", "move forward", "pickup grey key 1", "pickup grey ball 1", '
    '"pickup grey key 2", "pickup grey key 3", "pickup grey box 1", "pickup grey ball 2", "pickup grey key 4", '
    '"pickup red ball 1", "go to grey key 1", "go to grey ball 1", "go to grey key 2", "go to grey key 3", '
    '"go to grey box 1", "go to grey ball 2", "go to grey key 4", "go to red ball 1", "check available actions"]'
)


def test_original_looks_at_the_last_step_of_an_action_alone(tmp_path: Path) -> None:
    # Level 13 is "open the red door". Walking on through it hides the finish.
    world = with_ids(tmp_path, 12)
    begin(world, "12")
    while "toggle and go through red closed door 1" not in world.legal_actions():
        world.step("turn left")
    _, reward, terminated, _, _ = world.step("toggle and go through red closed door 1")
    assert (float(reward), terminated) == (0, False)
    begin(world, "12")
    over = False
    while not over:
        _, _, over, _, info = world.step(world.expert()[1])
    assert info["success"]
    clean = BabyAI(levels=["OpenRedDoor"])
    begin(clean, "test-OpenRedDoor-0")
    while "open and go through closed red door" not in clean.legal_actions():
        clean.step("turn left")
    assert clean.step("open and go through closed red door")[4]["success"]


def test_original_does_not_end_on_a_late_finish(tmp_path: Path) -> None:
    world = with_ids(tmp_path, 3, turn_limit=60)  # A room of six by six: 36 steps in all.
    begin(world, "3")
    for _ in range(24):
        world.step("turn left")
    over, turns = False, 0
    while "completed" not in (observation := world.step(world.expert()[1])[0]):
        turns += 1
        assert turns < 20
    saved = world.save()
    assert not saved[1], f"a finish worth at most a half does not end the episode: {observation}"
    while not over:
        _, _, terminated, truncated, info = world.step("check available actions")
        over = terminated or truncated
    assert info["success"]


def test_original_drops_the_order(tmp_path: Path) -> None:
    ids = [7 + 40 * seed for seed in range(12)]
    plain, told = with_ids(tmp_path, *ids), with_ids(tmp_path, *ids, order_words=True)
    goals = [[begin(world, str(task)).split("\n")[0] for task in ids] for world in (plain, told)]
    assert not any(" then " in goal or "after you" in goal for goal in goals[0])
    assert any(", then " in goal for goal in goals[1])
    assert any(", and " in goal for goal in goals[0])


def test_official_ids(tmp_path: Path) -> None:
    world = with_ids(tmp_path, 0, 41)
    assert [(task.id, task.category) for task in world.tasks("test")] == [("0", LEVELS[0]), ("41", LEVELS[1])]
    default = BabyAI(mode="original")
    assert [len(default.tasks(split)) for split in SPLITS] == [810, 216, 90]
    assert len({task.category for task in default.tasks("test")}) == 18
    with pytest.raises(BadInput, match="cannot be read"):
        BabyAI(mode="original", ids=tmp_path / "absent.json")


@pytest.mark.slow
def test_the_official_file(outside_data: Path) -> None:
    world = BabyAI(mode="original", ids=outside_data / "official_ids" / "babyai.json")
    assert (len(world.tasks("train")), len(world.tasks("test"))) == (810, 90)
    assert floor(world, world.tasks("test")) == pytest.approx(0.54, abs=0.06)
    assert ceiling(world, world.tasks("test")) == 1


# Promises


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "original"},
        {"levels": QUICK, "rules": "brief", "observation_length": "brief", "wording": "other", "train_tasks": 120},
    ],
)
@pytest.mark.slow
def test_the_checker_passes(options: dict[str, Any]) -> None:
    assert [finding for finding in check(lambda: BabyAI(**options)) if not finding.passed] == []


@pytest.mark.slow
def test_minigrid_is_loaded_late_and_missed_politely() -> None:
    script = (
        "import sys; from fedse.worlds.babyai import BabyAI; world = BabyAI(); world.tasks('test')\n"
        "assert 'minigrid' not in sys.modules\n"
        "sys.modules['minigrid'] = None\n"
        "world.reset(options={'task': world.tasks('test')[0].id})"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "'.[babyai]'" in answer.stderr.splitlines()[-1]
