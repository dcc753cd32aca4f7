"""The shop as a graph of pages: where one is, and where each click leads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.search import Index

MOST_HITS = 50
"""A search lists no more than this."""
_REMEMBERED = 1 << 14
"""Searches whose hits are kept."""
BUY, BACK, PREVIOUS, NEXT = "Buy Now", "Back to Search", "< Prev", "Next >"


class Page(NamedTuple):
    """One page of the shop and what was chosen on the way to it. The first page is the search page."""

    query: str = ""
    number: int = 0
    """Number of the page of results, from 1 up; 0 on the search page."""
    product: str = ""
    section: str = ""
    """The part of a product's description that is open: Description, Features or Reviews."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Options chosen for the product, each name once."""


@dataclass(frozen=True)
class Layout:
    """Which buttons the pages have."""

    per_page: int
    sections: tuple[str, ...]
    has_back: bool
    endless: bool
    """Whether there is always a next page, if an empty one."""


ORIGINAL = Layout(per_page=10, sections=("Description", "Features", "Reviews"), has_back=True, endless=True)
FULL = Layout(per_page=10, sections=("Description", "Features"), has_back=True, endless=False)
BRIEF = Layout(per_page=3, sections=("Features",), has_back=False, endless=False)


class Shop:
    """Products that can be searched and looked at."""

    def __init__(self, products: Sequence[Product], fields: frozenset[str], k1: float, b: float, noise: float) -> None:
        # Hits with equal scores are listed in the order of their ids.
        self.products = tuple(sorted(products, key=lambda product: product.id))
        self.by_id: Mapping[str, Product] = {product.id: product for product in self.products}
        self._index = Index([product.text(fields) for product in self.products], k1, b, noise)
        self._found: dict[str, tuple[Product, ...]] = {}

    def hits(self, query: str) -> tuple[Product, ...]:
        """The best products for a query, best first."""
        query = query.lower()
        found = self._found.get(query)
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            places = self._index.search(query, MOST_HITS)
            found = self._found[query] = tuple(map(self.products.__getitem__, places))
        return found

    def listed(self, page: Page, layout: Layout) -> tuple[Product, ...]:
        """The products on a page of results."""
        first = (page.number - 1) * layout.per_page
        return self.hits(page.query)[first : first + layout.per_page]

    def last_page(self, query: str, layout: Layout) -> int:
        return max(1, -(-len(self.hits(query)) // layout.per_page))

    def links(self, page: Page, layout: Layout) -> dict[str, Page | None]:
        """The texts that can be clicked and the page each leads to; None is the end of shopping."""
        found: dict[str, Page | None] = {}
        if page.number == 0:
            return found
        if layout.has_back:
            found[BACK] = Page()
        if page.section:
            found[PREVIOUS] = page._replace(section="")
        elif page.product:
            # Leaving a product forgets the options chosen for it.
            found[PREVIOUS] = Page(page.query, page.number)
            for section in layout.sections:
                found[section] = page._replace(section=section)
            found[BUY] = None
            for name, values in self.by_id[page.product].options.items():
                for value in values:
                    found[value] = page._replace(chosen=_with(page.chosen, name, value))
        else:
            if page.number > 1:
                found[PREVIOUS] = page._replace(number=page.number - 1)
            if layout.endless or page.number < self.last_page(page.query, layout):
                found[NEXT] = page._replace(number=page.number + 1)
            for product in self.listed(page, layout):
                found[product.id] = Page(page.query, page.number, product.id)
        return found

    def followed(self, page: Page, layout: Layout, text: str) -> Page | None:
        """Where a click leads, whatever the case of its text; a `KeyError` where there is nothing to click."""
        return {link.lower(): target for link, target in self.links(page, layout).items()}[text]


def _with(chosen: tuple[tuple[str, str], ...], name: str, value: str) -> tuple[tuple[str, str], ...]:
    if name in dict(chosen):
        return tuple((other, value if other == name else old) for other, old in chosen)
    return (*chosen, (name, value))


_ACTION = re.compile(r"\s*(search|click)\s*\[\s*(.*\S)\s*\]\s*\.?\s*", re.IGNORECASE)
_ORIGINAL_ACTION = re.compile(r"(.+)\[(.+)\]")


@lru_cache(maxsize=4096)
def parsed(action: str, original: bool) -> tuple[str, str]:
    """What is to be done, `search` or `click`, and with what, in lower case; two empty texts for anything else."""
    if original:
        found = _ORIGINAL_ACTION.match(action)
        name = found[1] if found else ""
    else:
        found = _ACTION.fullmatch(action)
        name = found[1].lower() if found else ""
    return (name, found[2].lower()) if found and name in ("search", "click") else ("", "")
