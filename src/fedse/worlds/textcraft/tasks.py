"""Which goals a split has, in which order, and which commands are listed with a goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from fedse.seeds import stream, uniform
from fedse.types import SPLITS, Split
from fedse.worlds.splits import assigned_split
from fedse.worlds.textcraft.plans import shortest_plan
from fedse.worlds.textcraft.recipes import Book, Recipe

Goals = Mapping[Split, Mapping[str, tuple[str, ...]]]
"""Goal items by split and category."""

_USES = 10
"""Of the recipes that share one ingredient with a needed recipe, at most so many can become distractors."""


def category(depth: int) -> str:
    return f"depth{depth}"


def goal_split(item: str) -> Split:
    """The split of a goal, from its name alone: what one client trains for, no other is tested on."""
    return assigned_split(stream("textcraft item", item))


@lru_cache(maxsize=64)
def reachable_goals(book: Book, shallowest: int, deepest: int, turns: int) -> Goals:
    """The goals of these depths that some plan of at most `turns` commands reaches; for the others there is none."""
    found: dict[Split, dict[str, list[str]]] = {split: {} for split in SPLITS}
    for depth in range(shallowest, deepest + 1):
        for item in sorted(item for item in book.makers if book.depths[item] == depth):
            if shortest_plan(book, item, (), turns) is not None:
                found[goal_split(item)].setdefault(category(depth), []).append(item)
    return {split: {name: tuple(own) for name, own in goals.items()} for split, goals in found.items()}


@lru_cache(maxsize=1024)
def goal_order(goals: tuple[str, ...], pool: int) -> tuple[str, ...]:
    """The order in which the goals of a category are set, one per task, and again from the start."""
    return tuple(sorted(goals, key=lambda item: stream("textcraft order", pool, item)))


def goals_by_depth(book: Book) -> list[str]:
    """The original's numbering of goals: by depth, and within a depth in the order in which the files were read."""
    return sorted(book.makers, key=lambda item: book.depths[item])


def _shuffled(recipes: Sequence[Recipe], key: int) -> list[Recipe]:
    draws = {recipe: uniform(key, place) for place, recipe in enumerate(recipes)}
    return sorted(draws, key=lambda recipe: draws[recipe])


def listed_recipes(book: Book, goal: str, distractors: int, key: int, *, any_other: bool) -> tuple[Recipe, ...]:
    """The commands shown with a goal, in random order: all that can be of use, and some that share an ingredient with them.

    With `any_other`, the number of distractors is made up from the rest of the book where too few share an ingredient.
    """
    needed = book.closure(goal)
    ingredients = list(dict.fromkeys(name for recipe in needed for name, _ in recipe.needs))
    alike: dict[Recipe, None] = {}
    for name in ingredients:
        users = [recipe for recipe in book.users[name] if recipe not in needed]
        alike.update(dict.fromkeys(_shuffled(users, stream(key, "uses", name))[:_USES]))
    chosen = _shuffled(list(alike), stream(key, "distractors"))[:distractors]
    if any_other and len(chosen) < distractors:
        others = [recipe for recipe in book.recipes if recipe not in needed and recipe not in alike]
        chosen += _shuffled(others, stream(key, "others"))[: distractors - len(chosen)]
    return tuple(_shuffled([*needed, *chosen], stream(key, "order")))


def goals_among(book: Book, goals: Mapping[str, tuple[str, ...]], recipes: Sequence[Recipe]) -> list[str]:
    """Those of the goals for which all that can be of use is among these recipes."""
    made, listed = {recipe.makes for recipe in recipes}, set(recipes)
    found = (item for own in goals.values() for item in own if item in made)
    return sorted(item for item in found if listed.issuperset(book.closure(item)))


def named_goal(word: str) -> str:
    """The goal that the id of a made task tells.

    >>> named_goal("oak_planks")
    'oak planks'
    """
    return word.replace("_", " ")
