"""Values that one who does not think might try, read off a JSON schema. Floors are measured with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
_DIGITS = 10
"""Whole numbers without bounds are guessed below this."""


def few_values(schema: Mapping[str, Any]) -> dict[str, Sequence[Any]] | None:
    """Values to try for each field that must be given; None where one of them has no few values.

    >>> few_values({"properties": {"door": {"enum": ["left", "right"]}}, "required": ["door"]})
    {'door': ['left', 'right']}
    """
    properties, definitions = schema.get("properties", {}), schema.get("$defs", {})
    found: dict[str, Sequence[Any]] = {}
    for name in schema.get("required", ()):
        values = _values(properties.get(name, {}), definitions)
        if not values:
            return None
        found[name] = values
    return found


def choice(values: Mapping[str, Sequence[Any]], draw: float) -> dict[str, Any]:
    """One value for each field, chosen by a number in [0, 1)."""
    taken = {}
    for name, possible in values.items():
        taken[name], draw = chosen(possible, draw)
    return taken


def chosen(values: Sequence[Item], draw: float) -> tuple[Item, float]:
    """One of the values, and what is left of the number for further choices."""
    place = draw * len(values)
    return values[int(place)], place - int(place)


def _values(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Sequence[Any] | None:
    if "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).removeprefix("#/$defs/"), {})
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    if schema.get("type") == "boolean":
        return [False, True]
    if schema.get("type") == "integer":
        low = int(schema.get("minimum", 0))
        return range(low, max(low, int(schema.get("maximum", low + _DIGITS - 1))) + 1)
    return None
