"""Actions taken apart: `get 2 oak log`, `craft 4 stick using 2 oak planks`, `inventory`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from fedse.worlds.textcraft.texts import Wording

_AMOUNT = re.compile(r"([0-9]{1,6}) (.+)")
"""A number and a name. More digits than six are no number of things."""


@dataclass(frozen=True, slots=True)
class Get:
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Craft:
    name: str
    count: int | None
    """None when left out."""
    needs: tuple[tuple[str, int], ...]
    unreadable: str = ""
    """The first ingredient that is not a number and a name."""


@dataclass(frozen=True, slots=True)
class Inventory:
    pass


@lru_cache(maxsize=8)
def _craft_pattern(wording: Wording) -> re.Pattern[str]:
    return re.compile(rf"{wording.craft} (.+) {wording.using} (.+)")


def parsed(action: str, wording: Wording) -> Get | Craft | Inventory | None:
    """What an action asks for; names are as written. None when it has none of the three forms."""
    verb, _, rest = action.partition(" ")
    if verb == wording.get:
        amount = _AMOUNT.fullmatch(rest)
        return Get(amount[2], int(amount[1])) if amount and int(amount[1]) else None
    if verb == wording.inventory:
        return None if rest else Inventory()
    match = _craft_pattern(wording).fullmatch(action)
    if match is None:
        return None
    made = _AMOUNT.fullmatch(match[1])
    name, count = (made[2], int(made[1])) if made else (match[1], None)
    needs = []
    for part in match[2].split(","):
        need = _AMOUNT.fullmatch(part.strip())
        if need is None:
            return Craft(name, count, (), part.strip())
        needs.append((need[2], int(need[1])))
    return Craft(name, count, tuple(needs))
