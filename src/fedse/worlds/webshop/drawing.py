"""The shop for a person at a terminal: a shopping list, prices as bars, options as chips."""

from __future__ import annotations

from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.goals import Goal
from fedse.worlds.webshop.pages import Layout, Page, Shop

_OFF = "\x1b[0m"
_BAR = 12
_WIDTH = 46


def _style(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}{_OFF}"


def drawing(shop: Shop, page: Page, goal: Goal, layout: Layout, score: float) -> str:
    """The list on top, the page below; `score` is negative as long as nothing was bought."""
    lines = [_wanted(goal, page), _trail(page)]
    if score >= 0:
        stars = round(5 * score)
        lines.append(_style("★" * stars, "1;33") + _style("☆" * (5 - stars), "90") + f"  {score:.0%} of the wish")
    elif page.product:
        lines += _item(shop.by_id[page.product], page)
    elif page.number:
        lines += [_hit(hit, goal) for hit in shop.listed(page, layout)]
    return "\n".join(lines)


def _wanted(goal: Goal, page: Page) -> str:
    chosen = dict(page.chosen)
    parts = [_style(", ".join(goal.product.wanted), "1")]
    for name, value in goal.options:
        mark = _style("✓", "1;32") if chosen.get(name) == value else _style("·", "90")
        parts.append(f"{mark} {name} {value}")
    if goal.is_limited:
        parts.append(f"≤ ${goal.price_limit:.2f}")
    return _style("wanted ", "90") + "  ".join(parts)


def _trail(page: Page) -> str:
    steps = ["search"]
    if page.number:
        steps.append(f"“{_cut(page.query, 30)}”, page {page.number}")
    steps += [step for step in (page.product, page.section) if step]
    return _style("you are at ", "90") + _style(" > ", "90").join([*steps[:-1], _style(steps[-1], "1;36")])


def _hit(hit: Product, goal: Goal) -> str:
    """A product with its price as a bar, half of which is the limit."""
    limit = goal.price_limit if goal.is_limited else hit.price
    filled = max(1, min(_BAR, round(_BAR / 2 * hit.price / limit)))
    colour = "32" if hit.price <= limit else "31"
    bar = _style("▇" * filled, colour) + _style("·" * (_BAR - filled), "90")
    title = hit.title.strip()
    return f"  {_style(hit.id, '36')} {bar} ${hit.price:<8.2f}{_cut(title, _WIDTH)}"


def _item(product: Product, page: Page) -> list[str]:
    chosen = dict(page.chosen)
    found = [f"  {_style(product.title.strip(), '1')}  ${product.price:.2f}"]
    for name, values in product.options.items():
        chips = [_style(f" {value} ", "1;30;46" if chosen.get(name) == value else "37;100") for value in values]
        found.append(f"  {name:>10} {' '.join(chips)}")
    return found


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
