"""Tasks that somebody else's environment knows by ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedse.types import SPLITS, Split
from fedse.worlds.splits import in_two_splits, set_apart

TaskId = str | int
Named = dict[Split, dict[str, TaskId]]
"""The ids of each split as the environment takes them, by the names under which we know the tasks."""


def named_tasks(given: Mapping[Split, Sequence[TaskId]]) -> Named:
    """The tasks of each split. Without ids for validation, a fifth of the training ids is set apart for it.

    >>> named_tasks({"train": [1, 2], "test": ["a"]})
    {'train': {'1': 1}, 'validation': {'2': 2}, 'test': {'a': 'a'}}
    """
    if missing := [split for split in ("train", "test") if not given.get(split)]:
        raise ValueError(f"`task_ids` has no ids for {missing[0]}")
    found = {split: {str(item): item for item in ids} for split, ids in given.items()}
    if "validation" not in found:
        found["train"], found["validation"] = map(dict, set_apart(list(found["train"].items())))
    if empty := [split for split in SPLITS if not found[split]]:
        raise ValueError(f"`task_ids` has too few ids to have any for {empty[0]}")
    if twice := in_two_splits(found):
        one, other, shared = twice
        raise ValueError(f"`task_ids`: {one} and {other} share '{shared[0]}'; a task is in one split only")
    return {split: found[split] for split in SPLITS}
