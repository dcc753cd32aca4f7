"""Where a hint stands: below the observation that it helps with, in the same turn.

The agent reads both. What is learned is the conversation with the bare observations: turns are appended one by one, so it
has exactly the token ids that it would have if the same replies had been given without help.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedse.protocols import Chat
from fedse.types import Trajectory


class TurnIds(NamedTuple):
    """A turn in token ids."""

    given: Sequence[int]
    """What the agent reads."""
    bare: Sequence[int]
    """The same without the hint."""
    hint: str
    """Empty where there is none, or no room for it."""


def hinted(observation: str, hint: str) -> str:
    """What the agent reads.

    >>> hinted("There is a wall above you.", "A good next action is: move left")
    'There is a wall above you.\\nHint: A good next action is: move left'
    """
    return f"{observation}\nHint: {hint}" if hint else observation


def turn_ids(chat: Chat, observation: str, hint: str, room: int) -> TurnIds:
    """A turn of fewer ids than there is room for, if its hint is what makes it too long."""
    bare = chat.turn(observation)
    given = chat.turn(hinted(observation, hint)) if hint else bare
    return TurnIds(given, bare, hint) if len(given) < room else TurnIds(bare, bare, "")


def hint_tokens(chat: Chat, trajectory: Trajectory) -> int:
    """How much longer hints made what the agent read."""
    return sum(
        len(chat.turn(hinted(step.observation, step.hint))) - len(chat.turn(step.observation))
        for step in trajectory.steps
        if step.hint
    )
