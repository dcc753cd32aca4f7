"""What a purchase is worth: how well product, options and price fit what was asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from fedse.errors import MissingExtra
from fedse.worlds.webshop.catalogue import Product
from fedse.worlds.webshop.goals import Goal
from fedse.worlds.webshop.search import STOP_WORDS

_ALIKE = 85
"""Two texts match when their token-set score, rounded, is above this."""

# A longer name of a colour is reduced to the first of these, in alphabetical order, that it contains.
_COLOURS = (
    "alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue", "blush",
    "bordeaux", "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne", "charcoal", "cheetah",
    "chestnut", "chocolate", "christmas", "coffee", "cognac", "copper", "coral", "cranberry", "cream", "crystal",
    "dark", "denim", "eggplant", "elephant", "espresso", "fuchsia", "gold", "granite", "grape", "graphite",
    "grass", "gray", "green", "grey", "heather", "indigo", "ivory", "ivy", "khaki", "lavender", "lemon",
    "leopard", "light", "lilac", "lime", "magenta", "maroon", "mauve", "merlot", "midnight", "mint", "mocha",
    "multicolor", "mushroom", "mustard", "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink",
    "plum", "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell", "silver",
    "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger", "turquoise",
    "violet", "walnut", "wheat", "white", "wine", "yellow",
)  # fmt: skip


def require_fuzzy_matching() -> None:
    """Fail now, with a sentence, where the library is missing, and not at the first purchase."""
    try:
        import rapidfuzz  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("the WebShop world", "rapidfuzz", "webshop") from error


@lru_cache(maxsize=1 << 17)
def alike(one: str, other: str) -> bool:
    """Whether two texts say the same, up to order, punctuation and words that only one of them has."""
    from rapidfuzz import fuzz

    return round(fuzz.token_set_ratio(_plain(one), _plain(other))) > _ALIKE


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", " ", re.sub("[\x80-\xff]", "", text).lower()).strip()


@lru_cache(maxsize=1 << 14)
def plain_colour(text: str) -> str:
    """The first colour that occurs in a text, or the text itself."""
    return next((colour for colour in _COLOURS if colour in text), text)


def _goal_option(name: str, value: str, both_sides: bool) -> str:
    """The wanted value of an option as it is compared.

    The original looks for a colour only among the two whole texts, name and value, so that `black2626` stays as it is
    while the purchased `black2626` becomes `black`.
    """
    if both_sides:
        return plain_colour(value)
    return next((colour for colour in _COLOURS if colour in (name, value)), f"{name} {value}")


@lru_cache(maxsize=1 << 14)
def _title_words(title: str) -> frozenset[str]:
    """The words that say what a thing is. The original takes the nouns; all content words do nearly as well."""
    return frozenset(word for word in re.findall(r"[^\W\d_]{2,}", title.lower()) if word not in STOP_WORDS)


def type_factor(bought: Product, goal: Product) -> float:
    """1 for the right kind of product, less for others."""
    asked = _title_words(goal.title)
    overlap = len(asked & _title_words(bought.title)) / len(asked) if asked else 0.2
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    same = bought.kind == goal.kind or len(set(bought.path) & set(goal.path)) >= 2
    return 1.0 if same or overlap > 0.2 else 0.5


def has_attribute(bought: Product, attribute: str) -> bool:
    if any(alike(own, attribute) for own in bought.attributes):
        return True
    texts = (bought.title, " ".join(bought.features), bought.description)
    return any(attribute in text.lower() for text in texts)


def reward(goal: Goal, bought: Product, chosen: Mapping[str, str], both_sides: bool) -> float:
    """From 0 to 1; 1 when everything that was asked for is there. `both_sides`: reduce colours in the wish too."""
    attributes = sum(has_attribute(bought, attribute) for attribute in goal.product.wanted)
    values = [plain_colour(value) for value in chosen.values()]
    wishes = [_goal_option(name, value, both_sides) for name, value in goal.options]
    options = sum(any(alike(value, wish) for value in values) for wish in wishes)
    in_budget = bought.price <= goal.price_limit
    share = (attributes + options + in_budget) / (len(goal.product.wanted) + len(goal.options) + 1)
    return share * type_factor(bought, goal.product)
