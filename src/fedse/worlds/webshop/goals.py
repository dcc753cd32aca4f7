"""What customers ask for: every product somebody wants, in every combination of its options, below a price."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fedse.worlds.webshop.catalogue import Product

_NO_LIMIT = 1_000_000.0
_LIMITS = tuple(10.0 * number for number in range(1, 100))
_SEED = 233
"""Price limits and the order of the goals follow from it, as in the original."""


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """A wish for one product with certain options, at a price not above a limit."""

    product: Product
    options: tuple[tuple[str, str], ...]
    price_limit: float
    number: int
    """Which of the product's combinations this is."""

    @property
    def is_limited(self) -> bool:
        return self.price_limit < _NO_LIMIT

    @property
    def instruction(self) -> str:
        """The wish as the original words it."""
        text = self.product.instruction
        if self.options:
            text += " with " + ", and ".join(f"{name}: {value}" for name, value in self.options)
        if self.is_limited:
            text += f", and price lower than {self.price_limit:.2f} dollars"
        return text


def goals(products: Sequence[Product]) -> list[Goal]:
    """All goals in the order of the products."""
    draw = random.Random(_SEED)
    found = []
    for product in products:
        if not product.instruction:
            continue
        limits = [limit for limit in _LIMITS if limit > product.price][:4]
        limit = max(draw.sample(limits, 2)) if len(limits) >= 2 else _NO_LIMIT
        names = sorted(product.options)
        for number, values in enumerate(itertools.product(*(product.options[name] for name in names))):
            found.append(Goal(product, tuple(zip(names, values, strict=True)), limit, number))
    return found


@lru_cache(maxsize=4)
def original_goals(products: tuple[Product, ...]) -> tuple[Goal, ...]:
    """The goals in the order that gives the original's ids."""
    found = goals(products)
    random.Random(_SEED).shuffle(found)
    return tuple(found)
