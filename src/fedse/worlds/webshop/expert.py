"""Scripted customers: the expert's plan for a goal, and a rule of four clicks that does not think."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.goals import Goal
from fedse.worlds.webshop.pages import BUY, NEXT, PREVIOUS, Layout, Page, Shop, parsed
from fedse.worlds.webshop.reward import reward

_LOOKED_AT = 1
"""So many products the expert opens on good looks alone; after that it uses what it knows, or episodes would be long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The words to search for and the page of results on which the product then stands."""

    query: str
    page: int


@dataclass(frozen=True, slots=True)
class Advice:
    """What the expert does next, and why."""

    reason: Literal["search", "search again", "open", "next", "back", "lacking", "option", "buy"]
    action: str
    product: Product | None = None
    option: tuple[str, str] = ("", "")


def _bare(text: str) -> str:
    """The words of a wish without its opening and its punctuation."""
    text = re.sub(r"^find me ", "", text.lower())
    return " ".join(re.findall(r"[\w'&-]+", text))


def plan(shop: Shop, goal: Goal, layout: Layout, may_use_title: bool) -> Plan | None:
    """The search in words of the instruction that brings the product to the earliest page, if there is one."""
    product = goal.product
    values = " ".join(value for _, value in goal.options)
    queries = [_bare(product.instruction), _bare(f"{product.instruction} {values}"), _bare(goal.instruction)]
    if may_use_title:
        queries.append(_bare(product.title))
    found = []
    for query in queries:
        hits = shop.hits(query) if query else ()
        if product in hits:
            found.append(Plan(query, 1 + hits.index(product) // layout.per_page))
        if found and found[-1].page == 1:
            break
    return min(found, key=lambda one: one.page) if found else None


def missing_option(goal: Goal, product: Product) -> tuple[str, str] | None:
    """A wanted option that the product does not come in."""
    return next(((name, value) for name, value in goal.options if value not in product.options.get(name, ())), None)


@dataclass(frozen=True, slots=True)
class Expert:
    """Knows what is wanted. In clean mode it goes by what the pages show and takes any product that fits."""

    shop: Shop
    goal: Goal
    layout: Layout
    plan: Plan | None
    only_target: bool
    """Whether only the product that the goal was made from will do, as in original mode."""

    def _fits(self, product: Product) -> bool:
        if product is self.goal.product:
            return True
        if self.only_target or missing_option(self.goal, product):
            return False
        return reward(self.goal, product, dict(self.goal.options), both_sides=True) == 1

    def _looks_right(self, product: Product) -> bool:
        """Whether the line of a product among the results says all that is wanted."""
        title, goal = product.title.lower(), self.goal
        named = all(attribute in title for attribute in goal.product.wanted)
        return named and product.kind == goal.product.kind and product.price <= goal.price_limit

    def advice(self, page: Page, seen: tuple[str, ...]) -> Advice:
        """The next step from any page. `seen` are the products opened so far."""
        if page.product:
            return self._on_product(page, self.shop.by_id[page.product])
        if page.number:
            for hit in self.shop.listed(page, self.layout):
                promising = not self.only_target and self._looks_right(hit)
                unknown = hit.id not in seen and len(seen) < _LOOKED_AT and missing_option(self.goal, hit) is not None
                if hit is self.goal.product or (promising and (self._fits(hit) or unknown)):
                    return Advice("open", f"click[{hit.id}]", hit)
            hits = self.shop.hits(page.query)
            if self.goal.product in hits:
                place = 1 + hits.index(self.goal.product) // self.layout.per_page
                if place < page.number:
                    return Advice("back", f"click[{PREVIOUS}]")
                # Turning pages is worth it when a new search would not be faster.
                if place - page.number <= (self.plan.page if self.plan else place):
                    return Advice("next", f"click[{NEXT}]")
        query = self.plan.query if self.plan else _bare(self.goal.product.title)
        return Advice("search again" if page.number else "search", f"search[{query}]")

    def _on_product(self, page: Page, product: Product) -> Advice:
        lacking = missing_option(self.goal, product)
        if page.section or not self._fits(product):
            return Advice(
                "lacking" if lacking and not page.section else "back",
                f"click[{PREVIOUS}]",
                product,
                lacking or ("", ""),
            )
        for name, value in self.goal.options:
            if dict(page.chosen).get(name) != value:
                return Advice("option", f"click[{value}]", product, (name, value))
        return Advice("buy", f"click[{BUY}]", product)


def is_solvable(shop: Shop, goal: Goal, layout: Layout, turn_limit: int) -> bool:
    """Whether the expert buys something that fits within the turn limit, and the product meant is worth everything."""
    if reward(goal, goal.product, dict(goal.options), both_sides=True) < 1:
        return False
    planned = plan(shop, goal, layout, may_use_title=False)
    if planned is None:
        return False
    expert, page = Expert(shop, goal, layout, planned, only_target=False), Page()
    seen: tuple[str, ...] = ()
    for _ in range(turn_limit):
        advice = expert.advice(page, seen)
        if advice.reason == "buy":
            product = shop.by_id[page.product]
            return reward(goal, product, dict(page.chosen), both_sides=True) == 1
        verb, text = parsed(advice.action, original=False)
        page = Page(text, 1) if verb == "search" else shop.followed(page, layout, text) or page
        seen = remembered(seen, page)
    return False


def remembered(seen: tuple[str, ...], page: Page) -> tuple[str, ...]:
    """The products opened so far, after coming to a page."""
    return (*seen, page.product) if page.product and page.product not in seen else seen


def wanted_value(wish: str, name: str, values: tuple[str, ...]) -> str | None:
    """The value of an option that a wish names word for word; of two that both fit, the longer."""
    fitting = [value for value in values if re.search(rf"{re.escape(f'{name}: {value}')}(?=[,;]|$)", wish)]
    return max(fitting, key=len) if fitting else None


def named_options(wish: str, options: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    found = {name: wanted_value(wish, name, values) for name, values in options.items()}
    return {name: value for name, value in found.items() if value is not None}


def four_clicks(shop: Shop, page: Page, wish: str) -> str:
    """Search for the whole wish, open the first hit, choose the options named word for word, buy."""
    if page.product:
        for name, value in named_options(wish, shop.by_id[page.product].options).items():
            if dict(page.chosen).get(name) != value:
                return f"click[{value}]"
        return f"click[{BUY}]"
    hits = shop.hits(page.query) if page.number else ()
    return f"click[{hits[0].id}]" if hits else f"search[{wish}]"


def four_clicks_suffice(shop: Shop, goal: Goal, wish: str, both_sides: bool) -> bool:
    """Whether that rule ends with everything that was asked for."""
    hits = shop.hits(wish)
    return bool(hits) and reward(goal, hits[0], named_options(wish, hits[0].options), both_sides) == 1
