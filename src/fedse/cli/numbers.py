"""Options that are several numbers with commas between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedse.errors import BadInput


def numbers(
    option: str, text: str, default: Sequence[float], fit: Callable[[list[float]], bool], wanted: str
) -> list[float]:
    """What was given, or the default where nothing was. `wanted` says in words what fits."""
    try:
        found = [float(item) for item in text.split(",")] if text else list(default)
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)) or not fit(found):
        raise BadInput(f"{option} {text}: give {wanted}.")
    return found
