"""What plug-ins return: the wrong kind of thing is told in a sentence, before it surprises somebody far away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from fedse.errors import BadInput
from fedse.visible import short

T = TypeVar("T")


def list_of(kind: type[T], found: Any, owner: str) -> Sequence[T]:
    """What `owner` returned, if it is a list of these."""
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise BadInput(f"{owner}: it has to return a list of `{kind.__name__}`, not {described(found)}.")
    for item in found:
        if not isinstance(item, kind):
            raise BadInput(f"{owner}: it has to return a list of `{kind.__name__}`, not one with {described(item)}.")
    return found


def numbers(found: Any, owner: str) -> dict[str, float]:
    """What `owner` measured: numbers by name. Those of NumPy and torch become plain ones."""
    if not isinstance(found, Mapping):
        raise BadInput(f"{owner}: it has to give numbers by name, as in {{'loss': 0.5}}, not {described(found)}.")
    return {str(name): _number(str(name), value, owner) for name, value in found.items()}


def plain_numbers(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was told beside a result: numbers of NumPy as plain ones, everything else as it is."""
    return {str(name): value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def described(found: Any) -> str:
    """In words that can stand in a sentence."""
    return "None" if found is None else f"something of the type {short(type(found).__name__)}"


def _number(name: str, value: Any, owner: str) -> float:
    if isinstance(value, int | float):
        return value
    with suppress(TypeError, ValueError, RuntimeError):
        if not isinstance(value, str | bytes):  # A text of digits is a text.
            return float(value)
    raise BadInput(f"{owner}: '{short(name)}' has to be a number, not {described(value)}.")
