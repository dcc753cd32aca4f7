"""Recipes as a graph: what makes what, what has to be fetched, and how deep a thing lies.

Names are plain words with blanks ("oak planks"). A need is an item or a *kind*, such as "planks", which any of its members
fills; one member fills it alone, with the whole count. Whatever no recipe makes is raw and can be fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from fedse.seeds import stream, uniform

Need = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One crafting command: `count` of `makes` out of `needs`, in the order in which they are written down."""

    makes: str
    count: int
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A recipe with a member chosen for each kind: exactly what a `craft` action does."""

    makes: str
    count: int
    needs: tuple[Need, ...]
    recipe: Recipe


def ingredients_key(needs: Iterable[Need]) -> tuple[Need, ...]:
    """The same for the same ingredients in any order."""
    return tuple(sorted(needs))


@dataclass(frozen=True, eq=False)
class Book:
    """A set of recipes, with everything that follows from it worked out once."""

    recipes: tuple[Recipe, ...]
    kinds: Mapping[str, tuple[str, ...]]
    items: frozenset[str]
    """All items there are, raw ones too."""

    @cached_property
    def makers(self) -> dict[str, tuple[Recipe, ...]]:
        """The recipes of each item that can be crafted, in the order of the book."""
        found: dict[str, list[Recipe]] = {}
        for recipe in self.recipes:
            found.setdefault(recipe.makes, []).append(recipe)
        return {item: tuple(own) for item, own in found.items()}

    @cached_property
    def largest(self) -> dict[str, int]:
        """How much of each item that can be crafted one craft makes at most."""
        return {item: max(recipe.count for recipe in own) for item, own in self.makers.items()}

    @cached_property
    def users(self) -> dict[str, tuple[Recipe, ...]]:
        """The recipes that name an item or a kind among their needs."""
        found: dict[str, list[Recipe]] = {}
        for recipe in self.recipes:
            for name, _ in recipe.needs:
                found.setdefault(name, []).append(recipe)
        return {name: tuple(own) for name, own in found.items()}

    def members(self, name: str) -> tuple[str, ...]:
        """The items that fill a need: those of the kind, or the item itself."""
        return self.kinds.get(name, (name,))

    @cached_property
    def raw(self) -> frozenset[str]:
        """The items that no recipe makes."""
        return self.items - set(self.makers)

    @cached_property
    def depths(self) -> dict[str, int]:
        """Crafting levels above raw items, by the shallowest recipe; a kind is as deep as its shallowest member."""
        known: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in known:
                if name in self.kinds:
                    known[name] = min(depth(item) for item in self.kinds[name])
                else:
                    own = self.makers.get(name, ())
                    known[name] = min((1 + max(depth(need) for need, _ in recipe.needs) for recipe in own), default=0)
            return known[name]

        for item in self.makers:
            depth(item)
        return known

    @lru_cache(maxsize=4096)  # noqa: B019 - a book lives as long as the process
    def closure(self, goal: str) -> tuple[Recipe, ...]:
        """All recipes that can take part in crafting the goal, nearest first."""
        seen, names, found = {goal}, [goal], []
        for name in names:
            for recipe in (own for item in self.members(name) for own in self.makers.get(item, ())):
                if recipe not in found:
                    found.append(recipe)
                for need, _ in recipe.needs:
                    if need not in seen:
                        seen.add(need)
                        names.append(need)
        return tuple(found)

    @lru_cache(maxsize=16384)  # noqa: B019
    def variants(self, recipe: Recipe) -> tuple[Variant, ...]:
        """Every choice of members for the kinds of a recipe."""
        choices = product(*(self.members(name) for name, _ in recipe.needs))
        return tuple(
            Variant(
                recipe.makes,
                recipe.count,
                tuple((item, count) for item, (_, count) in zip(chosen, recipe.needs, strict=True)),
                recipe,
            )
            for chosen in choices
        )

    @lru_cache(maxsize=4096)  # noqa: B019
    def by_ingredients(self, item: str) -> dict[tuple[Need, ...], Variant]:
        """How an item can be made: from the ingredients, in any order, to the variant that uses exactly them."""
        found: dict[tuple[Need, ...], Variant] = {}
        for recipe in self.makers.get(item, ()):
            for variant in self.variants(recipe):
                found.setdefault(ingredients_key(variant.needs), variant)
        return found


def without_cycles(recipes: Iterable[Recipe], kinds: Mapping[str, tuple[str, ...]]) -> tuple[Recipe, ...]:
    """The recipes in order, less each one that would let a thing be made out of itself, be it through a kind."""
    kept: list[Recipe] = []
    needed: dict[str, set[str]] = {}
    """For each item the items that its kept recipes name."""

    def leads_to(item: str, target: str) -> bool:
        seen, stack = {item}, [item]
        while stack:
            name = stack.pop()
            if name == target:
                return True
            for other in needed.get(name, ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return False

    for recipe in recipes:
        items = [item for name, _ in recipe.needs for item in kinds.get(name, (name,))]
        if not any(leads_to(item, recipe.makes) for item in items):
            kept.append(recipe)
            needed.setdefault(recipe.makes, set()).update(items)
    return tuple(kept)


@lru_cache(maxsize=64)
def part_of(book: Book, share: float, seed: int) -> Book:
    """A book in which only this share of the craftable items has recipes; the others have become raw.

    Whether an item stays is a function of its name and the seed.
    """
    key = stream("textcraft subset", seed)
    kept = tuple(recipe for recipe in book.recipes if uniform(stream(key, recipe.makes), 0) < share)
    return Book(kept, book.kinds, book.items)
