"""The Maze world: the map, the splits, the texts and every knob."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.maze import Maze
from fedse.worlds.maze.maps import DOUBLE_T_GOAL, DOUBLE_T_STARTS, carve, double_t, layout_key
from fedse.worlds.reference import ceiling, floor


def begin(world: Maze, task: str) -> str:
    return world.reset(options={"task": task})[0]


def test_the_original_map_has_the_published_numbers() -> None:
    layout = double_t()
    assert (len(layout.picture), len(layout.picture[0])) == (10, 13)
    assert len(layout.neighbours) == 26
    assert sorted(DOUBLE_T_STARTS) == sorted(set(layout.neighbours) - {DOUBLE_T_GOAL})
    lengths = [layout.distances(DOUBLE_T_GOAL)[start] for start in DOUBLE_T_STARTS]
    assert (min(lengths), max(lengths), round(mean(lengths), 2)) == (1, 12, 7.84)


def test_original_speaks_like_the_original() -> None:
    world = Maze(mode="original")
    assert begin(world, "0") == (
        "The goal is at position 8, 6. Your current position is at position 1, 1. "
        "There are walls to your left, above you, below you."
    )
    assert "position 1, 1 1." in begin(world, "9")
    before = begin(world, "16")
    assert "There is a wall above you." in before
    for action in ("", "up", "Move down", "move up"):
        observation, _, _, _, info = world.step(action)
        assert observation == before
        assert info["valid"] is (action == "move up")
    for _ in range(2):
        world.step(" move down ")
    observation, reward, terminated, _, info = world.step("move down")
    assert (observation, reward, terminated, info["success"]) == ("Success", 1.0, True, True)


def test_original_gives_up_on_the_51st_call() -> None:
    world = Maze(mode="original", turn_limit=60)
    begin(world, "0")
    for _ in range(50):
        assert not world.step("move up")[2]
    observation, reward, terminated, _, info = world.step("move up")
    assert (observation, reward, terminated, info["success"]) == ("Failure", -1.0, True, False)


def test_floors_and_ceilings() -> None:
    original, clean = Maze(mode="original"), Maze()
    assert floor(original, original.tasks("test"), repeats=40) == pytest.approx(0.07, abs=0.02)
    assert ceiling(original, original.tasks("test")) == 1
    assert floor(clean, clean.tasks("test")) < 0.3
    assert all(ceiling(clean, clean.tasks(split)) == 1 for split in SPLITS)


@pytest.mark.slow
def test_splits_are_disjoint_by_layout_even_between_clients() -> None:
    one, other = Maze(), Maze(pool=7, mix=0.5, mix_seed=3, shortest=3, longest=9)
    layouts = {
        split: {world.puzzle(task.id).layout.picture for world in (one, other) for task in world.tasks(split)}
        for split in SPLITS
    }
    assert all(len(layouts[split]) >= 200 for split in SPLITS)
    assert not layouts["train"] & layouts["test"]
    assert not layouts["train"] & layouts["validation"]
    assert not layouts["validation"] & layouts["test"]


def test_the_layout_key_depends_on_the_walls_alone() -> None:
    draws = iter([0.3] * 200)
    openings = carve(4, 0.5, draws)
    assert layout_key(4, openings) == layout_key(4, frozenset(sorted(openings)))
    assert layout_key(4, openings) != layout_key(4, frozenset(sorted(openings)[1:]))


def test_categories_are_bands_of_the_shortest_path() -> None:
    world = Maze()
    lengths: dict[str, set[int]] = {}
    for task in world.tasks("test"):
        puzzle = world.puzzle(task.id)
        lengths.setdefault(task.category, set()).add(puzzle.distance[puzzle.start])
    assert lengths == {"short": {2, 3, 4}, "medium": {5, 6, 7}, "long": {8, 9, 10}}


def test_a_task_id_means_the_same_maze_everywhere() -> None:
    world = Maze()
    assert begin(world, "test-long-3") == begin(Maze(rules="brief", mix=0.1, pool=4), "test-long-3")
    assert world.puzzle("test-long-3").layout.picture == PINNED_PICTURE


# Written down once: a change here changes every published number, so `version` must rise with it.
PINNED_PICTURE = (
    "###########",
    "#     #   #",
    "# ### ### #",
    "# #       #",
    "# ### ### #",
    "#       # #",
    "### ### # #",
    "# # #   # #",
    "# ### # # #",
    "#         #",
    "###########",
)


def test_size_loops_and_path_lengths_change_the_mazes() -> None:
    large = Maze(size=8)
    assert len(large.puzzle("test-short-0").layout.picture) == 17
    tree, open_field = Maze(loops=0), Maze(loops=0.8)

    def openings(world: Maze) -> int:
        neighbours = world.puzzle("test-short-0").layout.neighbours
        return sum(other is not None for reached in neighbours.values() for other in reached) // 2

    assert (openings(tree), openings(open_field)) == (24, 37)
    far = Maze(shortest=6, longest=8)
    lengths = [far.puzzle(task.id).distance[far.puzzle(task.id).start] for task in far.tasks("validation")]
    assert set(lengths) == {6, 7, 8}


def test_mix_changes_the_training_tasks_only() -> None:
    even, skewed, other = Maze(), Maze(mix=0.3, mix_seed=1), Maze(mix=0.3, mix_seed=2)
    counts = [Counter(task.category for task in world.tasks("train")) for world in (even, skewed, other)]
    assert counts[0] == {"short": 200, "medium": 200, "long": 200}
    assert len({tuple(sorted(count.items())) for count in counts}) == 3
    assert all(sum(count.values()) == 600 for count in counts)
    assert even.tasks("test") == skewed.tasks("test")
    assert len(Maze(train_tasks=50).tasks("train")) == 50


def test_pool_gives_other_training_mazes_and_the_same_test() -> None:
    one, two = Maze(), Maze(pool=1)
    pictures = [{world.puzzle(f"train-long-{n}").layout.picture for n in range(50)} for world in (one, two)]
    assert len(pictures[0] & pictures[1]) <= 1
    assert begin(one, "test-long-0") == begin(two, "test-long-0")


def test_wording_knobs() -> None:
    assert begin(Maze(observation_length="brief"), "test-short-0").startswith("goal ")
    assert len(begin(Maze(observation_length="brief"), "test-short-0")) <= 60
    assert len(Maze(rules="brief").rules) <= 320 < len(Maze().rules)
    walls = Maze(observation="walls")
    assert begin(walls, "test-short-0").startswith("There ")
    assert "goal" not in walls.expert()[0]
    compass = Maze(directions="compass")
    assert " to the " in begin(compass, "test-short-0")
    assert "go north" in compass.rules
    assert compass.expert()[1] in ("go north", "go south", "go west", "go east")
    assert compass.step("move up")[4]["valid"] is False
    assert Maze(turn_limit=13).turn_limit == 13


def test_a_wall_keeps_you_where_you_are_and_says_so() -> None:
    world = Maze(observation_length="brief")
    before = begin(world, "test-short-0")
    blocked = next(action for action in ("move up", "move down", "move left", "move right")
                   if action not in world.legal_actions())  # fmt: skip
    observation, _, _, _, info = world.step(blocked)
    assert (observation, info["valid"]) == (f"Wall. {before}", True)
    assert world.step("jump")[0] == f"Not an action. {before}"


def test_the_experts_thought_names_the_way_it_takes() -> None:
    for length in ("full", "brief"):
        world = Maze(rules=length)
        for task in world.tasks("train")[:60]:
            begin(world, task.id)
            over = False
            while not over:
                thought, action = world.expert()
                assert action.split()[1] in thought.replace(",", " ").replace(".", " ").split()
                assert len(thought) <= (60 if length == "brief" else 110)
                over = world.step(action)[2]


def test_options_that_cannot_work_are_refused() -> None:
    for wrong in (
        {"mode": "original", "size": 6},
        {"mode": "original", "directions": "compass"},
        {"ids": "ids.json"},
        {"longest": 30},
        {"shortest": 9},
        {"size": 2},
        {"loops": 1},
    ):
        with pytest.raises(BadInput):
            Maze(**wrong)
    impossible = Maze(loops=0.6, size=3, shortest=5, longest=8)
    with pytest.raises(BadInput, match="no maze of size 3"):
        begin(impossible, "test-long-0")
    with pytest.raises(BadInput, match="there is no task 'test-long-999'"):
        begin(Maze(), "test-long-999")


def test_official_ids(tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text('{"train": [18, 25, 17, 18], "test": [0, 1]}')
    world = Maze(mode="original", ids=ids)
    assert [task.id for task in world.tasks("train")] == ["18", "17"]
    assert [task.id for task in world.tasks("test")] == ["0", "1"]
    for content in ("[1]", '{"train": [26]}', '{"train": ["1"]}', "{", '{"trial": [1]}'):
        ids.write_text(content)
        with pytest.raises(BadInput):
            Maze(mode="original", ids=ids).tasks("train")
    with pytest.raises(BadInput, match="cannot be read"):
        Maze(mode="original", ids=tmp_path / "absent.json")


def test_the_official_file() -> None:
    folder = os.environ.get("FEDSE_DATA")
    if not folder:
        pytest.skip("FEDSE_DATA does not name the folder with the official ids")
    world = Maze(mode="original", ids=Path(folder) / "official_ids" / "maze.json")
    assert (len(world.tasks("train")), len(world.tasks("test"))) == (10, 25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"mode": "original"}, {"rules": "brief", "observation_length": "brief", "directions": "compass", "size": 4}],
)
def test_the_checker_passes(options: dict[str, str]) -> None:
    assert [finding for finding in check(lambda: Maze(**options)) if not finding.passed] == []


def turned(openings: frozenset[Any], size: int) -> set[frozenset[Any]]:
    """The eight ways a maze can lie, made by turning and mirroring its cells."""
    found = set()
    for _ in range(4):
        openings = frozenset(tuple(sorted((column, size + 1 - row) for row, column in edge)) for edge in openings)
        found |= {
            openings,
            frozenset(tuple(sorted((row, size + 1 - column) for row, column in edge)) for edge in openings),
        }
    return found


def walls(world: Maze, task: str) -> frozenset[Any]:
    neighbours = world.puzzle(task).layout.neighbours
    return frozenset(tuple(sorted((cell, other))) for cell, all_ in neighbours.items() for other in all_ if other)


@pytest.mark.parametrize("size", [3, 4])
def test_no_small_test_maze_is_a_training_maze_that_was_turned_or_mirrored(size: int) -> None:
    world = Maze(size=size, train_tasks=150)
    seen = set().union(*(turned(walls(world, task.id), size) for task in world.tasks("train")))
    for split in ("validation", "test"):
        assert not seen & {walls(world, task.id) for task in world.tasks(split)}
    assert world.version == 2 and Maze().version == Maze(mode="original").version == 1


@pytest.mark.parametrize("loops", [0.0, 0.8])
def test_a_kind_of_maze_with_too_few_shapes_is_refused(loops: float) -> None:
    with pytest.raises(BadInput, match="too few mazes of size 3"):
        Maze(size=3, loops=loops)
