"""What the expert says it thinks: from what is in view to the action it takes."""

from __future__ import annotations

from collections.abc import Collection

from fedse.worlds.babyai.expert import Advice
from fedse.worlds.babyai.goals import NOTHING
from fedse.worlds.babyai.rooms import Room
from fedse.worlds.babyai.words import Wording

_SIDES = {"turn left": "left", "turn right": "right"}


def thought(room: Room, advice: Advice, seen: Collection[int], wording: Wording, brief: bool) -> str:
    """A reason for the advised action. `seen` are the things in view."""
    why = _brief_reason(room, advice, seen, wording) if brief else _reason(room, advice, seen, wording)
    done = _brief_deed(room, advice, wording) if brief else _deed(room, advice, wording)
    return f"{why}, {done}." if brief else f"{why}, so I {done}."


def aimed_at(
    room: Room, advice: Advice, seen: Collection[int], wording: Wording, article: bool = True
) -> tuple[str, bool]:
    """What the advice is about, named as the agent can name it, and whether it is in view."""
    in_view = sorted(advice.things & set(seen))
    if advice.purpose in ("key", "box", "clear", "drop"):
        named = wording.plain(room, (in_view or sorted(advice.things))[0])
        return f"the {named}" if article else named, bool(in_view)
    clause = advice.clause
    phrase = clause.beside_phrase if advice.purpose == "put" and clause.beside_phrase else clause.phrase
    return wording.phrase(phrase, article), bool(in_view)


def _reason(room: Room, advice: Advice, seen: Collection[int], wording: Wording) -> str:
    wanted, in_view = aimed_at(room, advice, seen, wording)
    purpose = advice.purpose
    if purpose == "drop":
        return f"I need free hands and carry {wanted}"
    if purpose == "clear":
        return f"{wanted.capitalize()} is in the way" if in_view else "Something may be in the way further on"
    if purpose == "put":
        carried = wording.plain(room, room.held) if room.held != NOTHING else "thing"
        place = f"I see {wanted}" if in_view else f"I do not see {wanted} yet"
        return f"I carry the {carried}. {place}"
    if purpose == "key":
        door = wording.plain(room, advice.door)
        known = f"The {door} is locked" if advice.door in seen else f"A {wording.nouns['door']} may be locked"
        return f"{known}. I see {wanted} for it" if in_view else f"{known}. I look for {wanted}"
    if purpose == "box":
        return f"A {wording.nouns['key']} may be in {wanted}"
    return f"I see {wanted}" if in_view else f"I do not see {wanted} yet"


def _deed(room: Room, advice: Advice, wording: Wording) -> str:
    offer = advice.offer
    verb = wording.verb(offer)
    if offer.verb == "drop":
        return f"{verb} the {wording.plain(room, room.held)} here"
    if offer.verb in ("turn left", "turn right", "move forward"):
        return verb
    name = wording.plain(room, offer.thing)
    if offer.verb == "go to" and offer.thing not in advice.things:
        return f"{verb} the {name} to get nearer"
    return f"{verb} the {name}"


def _brief_reason(room: Room, advice: Advice, seen: Collection[int], wording: Wording) -> str:
    wanted, in_view = aimed_at(room, advice, seen, wording, article=False)
    purpose = advice.purpose
    if purpose == "drop":
        return "Need free hands"
    if purpose == "clear":
        return f"{wanted.capitalize()} in the way" if in_view else "Way may be blocked"
    if purpose == "put":
        return f"Put it by {wanted}" if in_view else f"Find {wanted}"
    if purpose == "key":
        return f"Need {wanted}"
    if purpose == "box":
        return f"{wording.nouns['key'].capitalize()} may be in {wanted}"
    return f"{wanted.capitalize()} seen" if in_view else f"No {wanted} yet"


def _brief_deed(room: Room, advice: Advice, wording: Wording) -> str:
    offer = advice.offer
    if offer.verb in _SIDES:
        return f"look {_SIDES[offer.verb]}"
    if offer.verb == "move forward":
        return "go on"
    verb = wording.verb(offer)
    if offer.verb == "drop":
        return f"{verb} {wording.plain(room, room.held)}"
    named = offer.thing in advice.things
    if offer.verb in ("go through", "open and go through"):
        return "try it" if named else f"try {wording.plain(room, offer.thing)}"
    if named and offer.verb == "pick up":
        return "pick it up" if verb == "pick up" else f"{verb} it"
    if named and offer.verb in ("go to", "toggle"):
        return f"{verb} it"
    return f"{verb} {wording.plain(room, offer.thing)}"
