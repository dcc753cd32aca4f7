from __future__ import annotations

from fedse.types import SPLITS
from fedse.worlds.maze import Maze
from fedse.worlds.splits import clean_tasks
from fedse.worlds.wordle import Wordle


def test_worlds_that_list_the_same_tasks_share_one_list() -> None:
    one, other = Maze(), Maze(rules="brief")
    assert all(one.tasks(split) is other.tasks(split) for split in SPLITS)
    assert one.tasks("train") is not Maze(train_tasks=30).tasks("train")
    assert len(Maze(train_tasks=30).tasks("train")) == 30
    assert one.tasks("train") != Maze(mix=0.5).tasks("train") != Maze(mix=0.5, mix_seed=1).tasks("train")
    assert Wordle().tasks("test")[0].category != one.tasks("test")[0].category


def test_shared_lists_cannot_be_changed_and_name_the_split_of_each_task() -> None:
    lists = clean_tasks(5, {"train": ["a", "b"], "validation": ["a"], "test": ["b"]}, None, 0)
    assert all(isinstance(lists.tasks[split], tuple) for split in SPLITS)
    assert [task.id for task in lists.tasks["train"]] == [
        "train-a-0",
        "train-b-0",
        "train-a-1",
        "train-b-1",
        "train-a-2",
    ]
    assert {lists.split_of[task.id] for task in lists.tasks["test"]} == {"test"}
