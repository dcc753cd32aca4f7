"""What a hint says the agent should mind, and what it should aim at."""

from __future__ import annotations

from collections.abc import Collection

from fedse.worlds.babyai.expert import Advice
from fedse.worlds.babyai.goals import NOTHING
from fedse.worlds.babyai.rooms import Room
from fedse.worlds.babyai.thoughts import aimed_at
from fedse.worlds.babyai.words import Wording


def to_mind(wording: Wording) -> str:
    """True in every state."""
    return (
        f"Turn round to see all of a room, go through a {wording.nouns['door']} where you do not see what you need, and "
        "carry one thing at a time."
    )


def to_aim_at(room: Room, advised: Advice, seen: Collection[int], wording: Wording) -> str:
    """What the next actions are for. `seen` are the things in view."""
    named, in_view = aimed_at(room, advised, seen, wording)
    where = "It is in view." if in_view else "It is not in view."
    match advised.purpose:
        case "drop":
            return f"Free your hands first: you carry {named}."
        case "clear":
            return f"{named.capitalize()} is in the way and has to be taken away. {where}"
        case "put":
            carried = f"the {wording.plain(room, room.held)}" if room.held != NOTHING else "what you carry"
            return f"Bring {carried} to {named}. {where}"
        case "key":
            return f"The {wording.plain(room, advised.door)} is locked: you need {named}. {where}"
        case "box":
            return f"Look into {named}: a {wording.nouns['key']} may be in it. {where}"
        case _:
            return f"You need {named}. {where}"
