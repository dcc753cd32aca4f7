"""The shortest way to craft a thing, by proof.

How many commands a plan has. `get N item` fetches any number at once, so a raw item costs one command however much of it is
needed, and a plan needs at most one such command per raw item. `craft` carries a recipe out once; making more takes more
commands. So a plan is told by how often each variant of each recipe is used, and its length is the number of crafts plus
the number of different raw items that have to be fetched. Since nothing is made out of itself, any such numbers that cover
the needs can be put in an order that works: what is needed is made before what needs it.

How the least is found. Things are settled from the goal downwards, each after everything that can need it. When the turn of
a thing comes, the amount of it that the plan needs is therefore final, and what remains open is only which recipe makes it
and which member fills a kind. The search tries all these choices and turns back as soon as the commands counted so far, plus
one craft per batch of what is already asked for and one `get` per raw item already asked for, reach the best plan known.
That sum never exceeds the length of any plan beyond it, so no better plan is lost; and when the search ends without a plan
within a limit, there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fedse.worlds.textcraft.recipes import Book, Recipe, Variant

Stock = tuple[tuple[str, int], ...]
"""What is carried, sorted by name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A shortest plan: how often each variant is crafted, and how much of each raw item is still to be fetched."""

    crafts: Mapping[Variant, int]
    fetches: Mapping[str, int]

    @property
    def length(self) -> int:
        return sum(self.crafts.values()) + len(self.fetches)


@lru_cache(maxsize=4096)
def _order(book: Book, goal: str) -> tuple[str, ...]:
    """Kinds and craftable items below the goal, each after all that can need it."""
    done: set[str] = set()
    backwards: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        done.add(name)
        if name in book.kinds:
            below = list(book.kinds[name])
        else:
            below = [need for recipe in book.makers.get(name, ()) for need, _ in recipe.needs]
        for other in below:
            visit(other)
        if name in book.kinds or name in book.makers:
            backwards.append(name)

    visit(goal)
    return tuple(reversed(backwards))


class _Search:
    """One search; `best` is the shortest plan so far, shorter than `bound`."""

    def __init__(self, book: Book, goal: str, stock: Mapping[str, int], bound: int) -> None:
        self.book, self.goal, self.stock, self.bound = book, goal, stock, bound
        self.order = _order(book, goal)
        self.best: Plan | None = None
        self.asked: dict[str, int] = {goal: stock.get(goal, 0) + 1}
        """Amounts needed of items, as far as settled."""
        self.slots: dict[str, list[tuple[Recipe, int, int]]] = {}
        """For each kind what asks for it: a recipe, the place among its needs, and how many times."""
        self.used: dict[Recipe, int] = {}
        self.filled: dict[tuple[Recipe, int], list[str]] = {}
        """For each recipe and place among its needs the members that fill it, one per craft."""

    def run(self) -> Plan | None:
        self._settle(0, 0)
        return self.best

    def _least(self) -> int:
        """Commands that what is asked for takes at least, apart from crafts already counted."""
        total, largest = 0, self.book.largest
        for item, amount in self.asked.items():
            lacking = amount - self.stock.get(item, 0)
            if lacking > 0:
                total += -(-lacking // largest[item]) if item in largest else 1
        return total

    def _settle(self, place: int, counted: int) -> None:
        if counted + self._least() >= self.bound:
            return
        if place == len(self.order):
            self.bound = counted + self._least()
            self.best = self._plan()
            return
        name = self.order[place]
        if name in self.book.kinds:
            self._fill(place, counted, [slot for slot in self.slots.get(name, []) for _ in range(slot[2])], 0, 0)
            return
        lacking = self.asked.get(name, 0) - self.stock.get(name, 0)
        if lacking <= 0:
            self._settle(place + 1, counted)
            return
        kept = self.asked.pop(name)
        for times in _ways(self.book.makers[name], lacking):
            self._ask(times, 1)
            self._settle(place + 1, counted + sum(times.values()))
            self._ask(times, -1)
        self.asked[name] = kept

    def _ask(self, times: Mapping[Recipe, int], sign: int) -> None:
        """Add what these crafts need, or take it back."""
        for recipe, number in times.items():
            self.used[recipe] = number if sign > 0 else 0
            for slot, (name, count) in enumerate(recipe.needs):
                if name not in self.book.kinds:
                    self.asked[name] = self.asked.get(name, 0) + sign * number * count
                elif sign > 0:
                    self.slots.setdefault(name, []).append((recipe, slot, number))
                else:
                    self.slots[name].remove((recipe, slot, number))

    def _fill(self, place: int, counted: int, slots: list[tuple[Recipe, int, int]], done: int, first: int) -> None:
        """Choose a member of the kind for each slot from number `done` on."""
        if counted + self._least() >= self.bound:
            return
        if done == len(slots):
            self._settle(place + 1, counted)
            return
        recipe, slot, _ = slots[done]
        members = self.book.kinds[self.order[place]]
        count = recipe.needs[slot][1]
        # Crafts of one recipe are alike: only how many of them use each member matters.
        begin = first if done and slots[done - 1] == slots[done] else 0
        for number in range(begin, len(members)):
            member = members[number]
            self.asked[member] = self.asked.get(member, 0) + count
            self.filled.setdefault((recipe, slot), []).append(member)
            self._fill(place, counted, slots, done + 1, number)
            self.filled[recipe, slot].pop()
            self.asked[member] -= count

    def _plan(self) -> Plan:
        crafts: dict[Variant, int] = {}
        for recipe, number in self.used.items():
            for craft in range(number):
                needs = tuple(
                    (self.filled[recipe, slot][craft] if name in self.book.kinds else name, count)
                    for slot, (name, count) in enumerate(recipe.needs)
                )
                variant = Variant(recipe.makes, recipe.count, needs, recipe)
                crafts[variant] = crafts.get(variant, 0) + 1
        fetches = {
            item: amount - self.stock.get(item, 0)
            for item, amount in self.asked.items()
            if amount > self.stock.get(item, 0) and item not in self.book.makers
        }
        return Plan(crafts, fetches)


def _ways(recipes: tuple[Recipe, ...], amount: int) -> Iterator[dict[Recipe, int]]:
    """Numbers of crafts that make the amount, none of them more than needed; a single recipe alone comes first."""
    for recipe in recipes:
        yield {recipe: -(-amount // recipe.count)}
    if len(recipes) > 1:
        for times in _splits(recipes, amount):
            if len(times) > 1:
                yield times


def _splits(recipes: tuple[Recipe, ...], amount: int) -> Iterator[dict[Recipe, int]]:
    head, rest = recipes[0], recipes[1:]
    most = -(-amount // head.count)
    if not rest:
        yield {head: most}
        return
    for number in range(most + 1):
        if number * head.count >= amount:
            yield {head: number}
        else:
            for times in _splits(rest, amount - number * head.count):
                yield {head: number, **times} if number else times


@lru_cache(maxsize=65536)
def shortest_plan(book: Book, goal: str, stock: Stock = (), within: int = 1_000) -> Plan | None:
    """A shortest plan for the goal from what is carried, or None when there is none of at most `within` commands."""
    return _Search(book, goal, dict(stock), within + 1).run()


@dataclass(frozen=True, slots=True)
class Move:
    """The next command of a plan and what it is for."""

    item: str
    amount: int
    craft: Variant | None
    """None when the item is fetched."""
    chain: tuple[str, ...]
    """From the goal down to what needs the item; empty when the item is the goal."""
    need: str
    """How that recipe names the item, which may be by its kind."""
    needed: int
    """How many it takes."""


def next_move(book: Book, goal: str, stock: Stock) -> Move:
    """The first command of a shortest plan: whatever the goal lacks first, and whatever that lacks, and so on.

    Any command of a shortest plan that can be carried out leaves a shortest plan with one command less.
    """
    plan = shortest_plan(book, goal, stock)
    if plan is None:
        raise RuntimeError(f"textcraft: there is no way to craft '{goal}'")
    carried = dict(stock)
    planned: dict[str, Variant] = {}
    for variant in plan.crafts:
        planned.setdefault(variant.makes, variant)
    variant = planned[goal]
    chain: tuple[str, ...] = ()
    need, needed = goal, 1
    while True:
        for place, (item, count) in enumerate(variant.needs):
            if carried.get(item, 0) < count:
                chain, need, needed = (*chain, variant.makes), variant.recipe.needs[place][0], count
                if item in plan.fetches:
                    return Move(item, plan.fetches[item], None, chain, need, needed)
                variant = planned[item]
                break
        else:
            return Move(variant.makes, variant.count, variant, chain, need, needed)
