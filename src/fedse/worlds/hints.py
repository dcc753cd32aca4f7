"""Three strengths of help: what to mind here, what to aim at, what to do next."""

from __future__ import annotations

from fedse.errors import BadInput

LEVELS = (1, 2, 3)


def at_level(level: int, advice: str, aim: str, action: str) -> str:
    """The help of a level.

    >>> at_level(3, "Mind the walls.", "The goal is further up.", "move left")
    'A good next action is: move left'
    """
    if level not in LEVELS:
        raise BadInput(f"a hint has a level from {LEVELS[0]} to {LEVELS[-1]}, not {level!r}.")
    return (advice, aim, f"A good next action is: {action}")[level - 1]
