"""Other wishes: a product for training, in any of its options or with some of them left open.

Splits differ by families of products, so a wish for a product of a training family is one of no other split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product as combinations

from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.goals import Goal, goals
from fedse.worlds.webshop.tasks import split_of

_BETWEEN = "."
_LEFT_OPEN = "_"


@lru_cache(maxsize=8)
def _wishes(products: tuple[Product, ...]) -> Mapping[str, Goal]:
    """One goal for each product for training that somebody asks for, by the product's id."""
    return {goal.product.id: goal for goal in goals(products) if split_of(goal.product) == "train"}


def told(product: Product, chosen: Mapping[str, str]) -> str:
    """Product and options in a word: `P0012.2._` is the third value of its first option, with the second left open."""
    places = [
        str(product.options[name].index(chosen[name])) if name in chosen else _LEFT_OPEN
        for name in sorted(product.options)
    ]
    return _BETWEEN.join([product.id, *places])


def wish(products: tuple[Product, ...], word: str) -> Goal | None:
    """The goal that `told` told, if it is for training."""
    name, *places = word.split(_BETWEEN)
    known = _wishes(products).get(name)
    if known is None or len(places) != len(known.product.options):
        return None
    chosen: list[tuple[str, str]] = []
    for option, place in zip(sorted(known.product.options), places, strict=True):
        values = known.product.options[option]
        numbers = [str(number) for number in range(len(values))]
        if place in numbers:
            chosen.append((option, values[numbers.index(place)]))
        elif place != _LEFT_OPEN:
            return None
    return Goal(known.product, tuple(chosen), known.price_limit, known.number)


def other_options(goal: Goal) -> Iterator[str]:
    """The same product in every other combination of its options."""
    names = sorted(goal.product.options)
    for values in combinations(*(goal.product.options[name] for name in names)):
        chosen = tuple(zip(names, values, strict=True))
        if chosen != goal.options:
            yield told(goal.product, dict(chosen))
