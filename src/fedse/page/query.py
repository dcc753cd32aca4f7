"""What a reader asks for, as conditions on the list of trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EXACT = ("client", "world", "outcome", "purpose", "split", "category", "round", "adapter", "kept")
_SORTS = ("round", "tokens", "steps", "score", "invalid")


def words(search: str) -> list[str]:
    """What all has to be found: words, and what stands between quotation marks as a whole.

    >>> words('blue "move up" ball')
    ['blue', 'move up', 'ball']
    """
    parts = search.lower().split('"')
    return [word for place, part in enumerate(parts) for word in ([part] if place % 2 else part.split()) if word]


def where(asked: Mapping[str, str]) -> tuple[str, list[Any]]:
    """The condition and its values. Nothing that was asked for stands in the text of the query."""
    tests: list[str] = []
    values: list[Any] = []
    for column in _EXACT:
        if asked.get(column):
            # A number that was stored as one is not equal to its digits.
            tests.append(f"CAST({column} AS TEXT) = ?")
            values.append(asked[column])
    if asked.get("task"):
        tests.append("instr(lower(task), ?)")
        values.append(asked["task"].lower())
    for key, test in (("least", "tokens >= ?"), ("most", "tokens <= ?")):
        if asked.get(key, "").isdecimal():
            tests.append(test)
            values.append(int(asked[key]))
    for word in words(asked.get("text", "")):
        tests.append("instr(text, ?)")
        values.append(word)
    return f"WHERE {' AND '.join(tests)}" if tests else "", values


def order(asked: Mapping[str, str]) -> str:
    usual = "adapter DESC, journal DESC, client, line"
    column, _, direction = asked.get("sort", "").partition(" ")
    return f"{column} {'DESC' if direction == 'down' else 'ASC'}, {usual}" if column in _SORTS else usual
