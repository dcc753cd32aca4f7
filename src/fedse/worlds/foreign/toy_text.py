"""Words for Gymnasium's toy-text environments, and its terminal drawings made readable without colours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

_HIGHLIGHTED = re.compile(r"\x1b\[(?:\d+;)*4\dm(.*?)\x1b\[0m", re.DOTALL)
_COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Known:
    """How to put an environment of Gymnasium's toy-text family into words."""

    actions: tuple[str, ...]
    description: str
    success_reward: float
    observation: str = "{0}"


TOY_TEXT = {
    "FrozenLake": Known(
        ("left", "down", "right", "up"),
        "You cross a frozen lake from the start S to the goal G. F is ice that carries you, H is a hole that ends the "
        "game. Square brackets mark where you are. The ice may be slippery: then you sometimes slide sideways.",
        1.0,
    ),
    "CliffWalking": Known(
        ("up", "right", "down", "left"),
        "You walk over a grid to the target T. You are at x. C is a cliff: stepping on it puts you back to the start.",
        -1.0,
    ),
    "Taxi": Known(
        ("south", "north", "east", "west", "pickup", "dropoff"),
        "You drive a taxi: fetch the passenger and bring them to their destination. R, G, Y and B are stops, | and the "
        "frame are walls, : can be passed. Square brackets mark the taxi; round brackets mark passenger and "
        "destination. Your place and theirs are also told in words.",
        20.0,
    ),
    "Blackjack": Known(
        ("stick", "hit"),
        "You play Blackjack against a dealer: come closer to 21 than the dealer and do not go over it.",
        1.0,
        "Your cards sum to {0[0]}, the dealer shows {0[1]}, and you have {0[2]} usable aces.",
    ),
}


def readable(drawn: str) -> str:
    """A terminal drawing without escape codes: what was highlighted is put in square, what was coloured in round brackets.

    >>> readable("\\x1b[41mS\\x1b[0mFF")
    '[S]FF'
    """
    marked = _COLOURED.sub(r"(\1)", _HIGHLIGHTED.sub(r"[\1]", drawn))
    return "\n".join(line.rstrip() for line in _ESCAPE.sub("", marked).strip("\n").splitlines())


def plain(value: Any) -> Any:
    """An observation without NumPy's types, so that it prints as numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
