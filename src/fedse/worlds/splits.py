"""Which tasks a split holds: the mix of categories, and official ids from a user's file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Self, TypeVar

from fedse.errors import BadInput
from fedse.seeds import generator
from fedse.types import SPLITS, Split, Task

T = TypeVar("T")
EVALUATION_TASKS = 210
"""Tasks in the validation split and in the test split of a clean world."""


def assigned_split(key: int) -> Split:
    """The split of the thing (a maze, a word) with this key: six tenths are for training, two for each of the others.

    The key is a hash of the thing itself. So what one client trains on is never what another is tested on, whatever
    else differs between them.
    """
    tenth = key % 10
    return "train" if tenth < 6 else "validation" if tenth < 8 else "test"


def set_apart(train: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """What is left for training, and the last fifth, for validation.

    >>> set_apart([1, 2, 3])
    ([1, 2], [3])
    """
    fifth = max(1, len(train) // 5)
    return train[:-fifth], train[-fifth:]


def in_two_splits(ids: Mapping[Split, Collection[str]]) -> tuple[Split, Split, list[str]] | None:
    """The first two splits that share tasks, with those; None when each task is in one only."""
    for one, other in combinations(SPLITS, 2):
        if shared := sorted(set(ids[one]) & set(ids[other])):
            return one, other, shared
    return None


@dataclass(frozen=True, slots=True)
class TaskLists:
    """The tasks of each split in their order, and the split of each task id."""

    tasks: Mapping[Split, Sequence[Task]]
    split_of: Mapping[str, Split]

    @classmethod
    def of(cls, tasks: Mapping[Split, Sequence[Task]]) -> Self:
        return cls(tasks, {task.id: split for split, own in tasks.items() for task in own})


def clean_tasks(
    train_tasks: int, categories: Mapping[Split, Sequence[str]], mix: float | None, mix_seed: int
) -> TaskLists:
    """The lists of a clean world. Only training tasks are mixed; worlds that ask for the same get the same object."""
    return _clean_tasks(train_tasks, tuple(tuple(categories[split]) for split in SPLITS), mix, mix_seed)


# Many instances of a world are played at once, and few kinds of worlds.
@lru_cache(maxsize=16)
def _clean_tasks(
    train_tasks: int, categories: tuple[tuple[str, ...], ...], mix: float | None, mix_seed: int
) -> TaskLists:
    train, validation, test = categories
    return TaskLists.of(
        {
            "train": tuple(mixed_tasks("train", train_tasks, train, mix, mix_seed)),
            "validation": tuple(mixed_tasks("validation", EVALUATION_TASKS, validation, None, 0)),
            "test": tuple(mixed_tasks("test", EVALUATION_TASKS, test, None, 0)),
        }
    )


def mixed_tasks(split: Split, total: int, categories: Sequence[str], mix: float | None, mix_seed: int) -> list[Task]:
    """Tasks named `split-category-number`, `total` of them, with the categories spread evenly over the list.

    Without `mix` every category gets the same share; otherwise the shares are one Dirichlet draw.
    """
    if mix is None:
        shares = [1 / len(categories)] * len(categories)
    else:
        shares = generator("task mix", mix_seed).dirichlet([mix] * len(categories)).tolist()
    counts = _whole(total, shares)
    # The first n tasks of a split should be a fair sample of it, so each category is spread over the whole list.
    places = sorted(
        ((number + 0.5) / count, place, number) for place, count in enumerate(counts) for number in range(count)
    )
    return [Task(f"{split}-{categories[place]}-{number}", categories[place]) for _, place, number in places]


def _whole(total: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers in the proportion of `shares` that sum to `total`; the largest remainders are rounded up."""
    exact = [share * total for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda place: (counts[place] - exact[place], place))
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts


def official_ids(path: Path) -> dict[Split, list[str]]:
    """Ids from a JSON file such as `{"train": [3, 5], "test": [0, 1]}`, each id once."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file of official ids {path} cannot be read: {error}.") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"the file of official ids {path} is not JSON: {error}.") from error
    if not isinstance(content, dict) or not content or not set(content) <= set(SPLITS):
        raise BadInput(f"the file of official ids {path} must hold an object with lists under {', '.join(SPLITS)}.")
    found: dict[Split, list[str]] = {}
    for split in SPLITS:
        if split in content:
            ids = content[split]
            if not isinstance(ids, list) or not ids or not all(type(item) is int and item >= 0 for item in ids):
                raise BadInput(f"the file of official ids {path} must list whole numbers from 0 up under '{split}'.")
            found[split] = list(dict.fromkeys(str(item) for item in ids))
    return found
