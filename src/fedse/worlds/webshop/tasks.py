"""Which goals are tasks of which split. Clean: by product, and only goals that can be reached. Original: by position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from fedse.errors import BadInput
from fedse.seeds import generator, stream, uniform
from fedse.types import SPLITS, Split, Task
from fedse.worlds.splits import EVALUATION_TASKS, assigned_split
from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.goals import Goal, goals, original_goals

_PER_PRODUCT = 8
"""At most so many goals ask for the same product."""
_ORIGINAL_TEST = 200

Book = tuple[Mapping[Split, tuple[Task, ...]], Mapping[str, Goal]]
"""The tasks of each split, and the goal of each task."""


def split_of(product: Product) -> Split:
    return assigned_split(stream("webshop product", product.family))


def sold(products: Sequence[Product], part: float, part_seed: int) -> tuple[Product, ...]:
    """The catalogue with only a part of the families that training tasks can ask for."""

    def stays(product: Product) -> bool:
        drawn = uniform(stream("webshop part", part_seed, product.family), 0)
        return split_of(product) != "train" or drawn < part

    return tuple(product for product in products if stays(product))


@lru_cache(maxsize=8)
def _candidates(products: tuple[Product, ...], pool: int) -> dict[Split, dict[str, list[Goal]]]:
    """Goals by split and category: first one for every product, then a second for every product, and so on."""
    by_product: dict[str, list[Goal]] = {}
    for goal in goals(products):
        by_product.setdefault(goal.product.id, []).append(goal)
    found: dict[Split, dict[str, list[tuple[int, int, Goal]]]] = {split: {} for split in SPLITS}
    for own in by_product.values():
        split = split_of(own[0].product)
        client = pool if split == "train" else 0
        keyed = sorted((stream("webshop goal", client, goal.product.id, goal.number), goal.number) for goal in own)
        places = found[split].setdefault(own[0].product.category, [])
        for rank, (key, number) in enumerate(keyed[:_PER_PRODUCT]):
            places.append((rank, key, own[number]))
    return {
        split: {name: [goal for *_, goal in sorted(rows, key=lambda row: row[:2])] for name, rows in sorted(by.items())}
        for split, by in found.items()
    }


def clean_tasks(
    products: tuple[Product, ...],
    train_tasks: int,
    pool: int,
    mix: float | None,
    mix_seed: int,
    is_good: Callable[[Goal], bool],
    is_good_for_training: Callable[[Goal], bool],
) -> Book:
    """Tasks with ids `split-product-combination`, evenly or by a Dirichlet draw over the categories.

    `products` are those of the whole catalogue, so that a shop that sells only a part of it words its wishes alike.
    """
    tasks: dict[Split, tuple[Task, ...]] = {}
    known: dict[str, Goal] = {}
    for split, by_category in _candidates(products, pool).items():
        shares, total, is_fine = [1 / len(by_category)] * len(by_category), EVALUATION_TASKS, is_good
        if split == "train":
            total, is_fine = train_tasks, lambda goal: is_good(goal) and is_good_for_training(goal)
            if mix is not None:
                shares = generator("task mix", mix_seed).dirichlet([mix] * len(by_category)).tolist()
        chosen = _chosen(split, total, shares, [_Sieve(found, is_fine) for found in by_category.values()])
        # The first n tasks of a split should be a fair sample of it, so each category is spread over the whole list.
        places = sorted(
            ((number + 0.5) / len(own), place, number) for place, own in enumerate(chosen) for number in range(len(own))
        )
        for _, place, number in places:
            goal = chosen[place][number]
            known[f"{split}-{goal.product.id}-{goal.number}"] = goal
        tasks[split] = tuple(
            Task(key, goal.product.category) for key, goal in known.items() if key.startswith(f"{split}-")
        )
    return tasks, known


class _Sieve:
    """Goals that pass a test, tested only as far as they are asked for."""

    def __init__(self, candidates: Sequence[Goal], is_fine: Callable[[Goal], bool]) -> None:
        self._rest = (goal for goal in candidates if is_fine(goal))
        self._found: list[Goal] = []

    def first(self, count: int) -> list[Goal]:
        """The first `count` of them, or all there are."""
        self._found += itertools.islice(self._rest, max(0, count - len(self._found)))
        return self._found[:count]


def _chosen(split: Split, total: int, shares: Sequence[float], sieves: Sequence[_Sieve]) -> list[list[Goal]]:
    """Goals of each category, as near to the shares as what is there allows."""
    most = [total] * len(sieves)
    while True:
        counts = _counts(min(total, sum(most)), shares, most)
        chosen = [sieve.first(count) for sieve, count in zip(sieves, counts, strict=True)]
        short = [place for place, own in enumerate(chosen) if len(own) < counts[place]]
        if not short:
            break
        for place in short:
            most[place] = len(chosen[place])
    found = sum(len(own) for own in chosen)
    if found < total and split == "train":
        raise BadInput(
            f"webshop: there are {found} training tasks of this kind, not {total}; lower `train_tasks`, raise `part`, or "
            "change `hardness`."
        )
    if not found:
        raise BadInput(f"webshop: this catalogue has no task for the {split} split; use a larger one.")
    return chosen


def _counts(total: int, shares: Sequence[float], most: Sequence[int]) -> list[int]:
    """Whole numbers that sum to `total`, near the shares, none above its bound."""
    counts = [0] * len(shares)
    for _ in range(total):
        free = [place for place, bound in enumerate(most) if counts[place] < bound]
        behind = max(free, key=lambda place: (shares[place] * total - counts[place], -place))
        counts[behind] += 1
    return counts


def original_tasks(products: tuple[Product, ...], official: Mapping[Split, Sequence[str]]) -> Book:
    """Tasks named by a goal's position. What the official file does not list is taken from the goals left over."""
    found = original_goals(products)
    everywhere = {str(number): goal for number, goal in enumerate(found)}
    chosen: dict[Split, Sequence[str]] = dict(official)
    for split, ids in official.items():
        for task in ids:
            if task not in everywhere:
                raise BadInput(
                    f"webshop: official id {task} ({split}) is not one of the {len(found)} goals of this catalogue."
                )
    for split, most in (("test", _ORIGINAL_TEST), ("validation", EVALUATION_TASKS), ("train", len(found))):
        if split not in chosen:
            taken = {task for ids in chosen.values() for task in ids}
            chosen[split] = [task for task in everywhere if task not in taken][:most]
    tasks = {split: tuple(Task(task, everywhere[task].product.category) for task in chosen[split]) for split in SPLITS}
    return tasks, everywhere
