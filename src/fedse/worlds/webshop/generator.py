"""A shop of our own: products generated from a seed, with look-alikes that differ in one thing that matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from fedse.seeds import stream, uniform
from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.wares import BRANDS, KINDS, OPTIONS, Kind

FAMILIES = 750
"""Products that somebody asks for. Each has as many look-alikes as the shop's option says."""
MOST_LOOKALIKES = 4
_DIFFERENCES = ("price", "option", "attribute")


class _Draws:
    """Numbers of one stream, one after another."""

    def __init__(self, *name: str | int) -> None:
        key = stream("webshop catalogue", *name)
        self._numbers: Iterator[float] = (uniform(key, index) for index in range(1 << 62))

    def below(self, bound: int) -> int:
        return int(next(self._numbers) * bound)

    def some(self, items: Sequence[str], count: int) -> tuple[str, ...]:
        """`count` of the items, in the order in which they are drawn."""
        left = list(items)
        return tuple(left.pop(self.below(len(left))) for _ in range(min(count, len(left))))

    def price(self, low: int, high: int) -> float:
        return low + self.below(high - low) + (0.0, 0.5, 0.99)[self.below(3)]


@lru_cache(maxsize=8)
def generated_products(lookalikes: int) -> tuple[Product, ...]:
    """The built-in catalogue in the order of the product ids, which say nothing about the products."""
    ids, found = _ids(), []
    for number in range(FAMILIES):
        kind = KINDS[number % len(KINDS)]
        first = _wanted(number, kind)
        found.append(replace(first, id=ids[number, 0]))
        for place in range(lookalikes):
            found.append(replace(_lookalike(first, number, place, kind), id=ids[number, place + 1]))
    return tuple(sorted(found, key=lambda product: product.id))


@lru_cache(maxsize=1)
def _ids() -> dict[tuple[int, int], str]:
    """Ids for the product and the greatest number of look-alikes of each family: a product keeps its id in every shop."""
    places = [(number, place) for number in range(FAMILIES) for place in range(MOST_LOOKALIKES + 1)]
    places.sort(key=lambda place: stream("webshop id", *place))
    return {place: f"P{number:04}" for number, place in enumerate(places)}


def _wanted(number: int, kind: Kind) -> Product:
    """A product that a customer asks for by some of its attributes."""
    draws = _Draws(number)
    attributes = draws.some(kind.attributes, 3)
    options = {
        name: tuple(sorted(draws.some(OPTIONS[name], 3 + draws.below(2)), key=OPTIONS[name].index))
        for name in kind.options
    }
    wanted = attributes[: 2 + draws.below(2)]
    price = draws.price(*kind.prices)
    return replace(
        _described(kind, BRANDS[draws.below(len(BRANDS))], attributes, options, price),
        instruction=f"Find me {', '.join(wanted)} {kind.name}",
        wanted=wanted,
        # Products that are asked for in the same words go to the same split.
        family=f"{kind.name}: {', '.join(sorted(wanted))}",
    )


def _lookalike(first: Product, number: int, place: int, kind: Kind) -> Product:
    """Nearly the same by another brand: with a price above any limit, with fewer values of an option, or without one of
    the wanted attributes. It praises itself a little more, so that a search lists it early.
    """
    draws = _Draws(number, "like", place)
    first_difference = _DIFFERENCES[number // len(KINDS) % len(_DIFFERENCES)]
    difference = first_difference if place == 0 else _DIFFERENCES[0 if place % 2 else 2]
    attributes, options, price = list(first.attributes), dict(first.options), first.price
    if difference == "price":
        # The limit of a wish is at most the fourth full ten above the price.
        price += 41 + draws.below(20)
    elif difference == "option":
        name = list(options)[draws.below(len(options))]
        kept = draws.some(options[name], len(options[name]) // 2)
        options[name] = tuple(value for value in options[name] if value in kept)
    else:
        others = [attribute for attribute in kind.attributes if attribute not in attributes]
        attributes[draws.below(len(first.wanted))] = others[draws.below(len(others))]
    brands = [brand for brand in BRANDS if not first.title.startswith(brand)]
    brand = brands[draws.below(len(brands))]
    found = _described(kind, brand, tuple(attributes), options, price)
    praise = f" Looking for {', '.join(attributes)} {kind.name}? Look no further."
    return replace(found, description=found.description + praise, family=first.family)


def _described(
    kind: Kind, brand: str, attributes: tuple[str, ...], options: Mapping[str, tuple[str, ...]], price: float
) -> Product:
    price = round(price, 2)
    return Product(
        id="",
        title=f"{brand} {kind.name}, {', '.join(attributes)}",
        short_title=f"{kind.name}, {', '.join(attributes)}",
        description=f"The {kind.name} by {brand}. What customers like about it: {', '.join(attributes)}.",
        features=tuple(f"{attribute[0].upper()}{attribute[1:]}." for attribute in attributes),
        price=price,
        price_tag=f"${price:.2f}",
        path=(kind.category, kind.name),
        category=kind.category,
        kind=kind.name,
        options=options,
        attributes=attributes,
    )
