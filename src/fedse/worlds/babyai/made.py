"""Other missions in the rooms of a training task: one kind of thing to go to, to pick up or to open, or two of these.

Splits differ by a hash of rooms and mission together, so a mission is made only where that hash is one of training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from fedse.types import Split
from fedse.worlds.babyai.goals import NOTHING, Both, Clause, Goal, Phrase
from fedse.worlds.babyai.rooms import LOCKED, OPEN, Layout, Room, Thing, steps_of
from fedse.worlds.babyai.words import WORDINGS
from fedse.worlds.splits import assigned_split

_TRAIN: Split = "train"
_PLAIN = WORDINGS["plain"]
_VERBS: Mapping[str, Literal["go to", "pick up", "open"]] = {"go_to": "go to", "pick_up": "pick up", "open": "open"}
"""As ids and as missions tell them."""
_AND = "+"


def told(verb: str, thing: Thing) -> str:
    """What is to be done, in a word.

    >>> told("pick_up", Thing("ball", "red"))
    'pick_up-red-ball'
    """
    return f"{verb}-{thing.color}-{thing.kind}"


def both(one: str, other: str) -> str:
    """Two things to do, in a word; the same in either order.

    >>> both("pick_up-red-ball", "open-blue-door")
    'open-blue-door+pick_up-red-ball'
    """
    return _AND.join(sorted((one, other)))


def with_mission(layout: Layout, word: str) -> Layout | None:
    """The same rooms with the mission that `told` or `both` told, if it is a task for training and not done from the
    beginning."""
    words = word.split(_AND)
    clauses = [_clause(layout, part, mark) for mark, part in enumerate(words)]
    match clauses:
        case [Clause() as alone]:
            goal: Goal = alone
        case [Clause() as one, Clause() as other] if one.things != other.things and words == sorted(words):
            goal = Both((one, other), mark=2)
        case _:
            return None
    found = replace(layout, goal=goal, mission=_PLAIN.mission(goal, with_order=True))
    return found if assigned_split(found.key()) == _TRAIN else None


def _clause(layout: Layout, word: str, mark: int) -> Clause | None:
    verb, _, what = word.partition("-")
    color, _, kind = what.partition("-")
    things = [number for number, thing in enumerate(layout.things) if (thing.color, thing.kind) == (color, kind)]
    # What is in a box is not spoken of; what is carried from the beginning would make a mission hard to understand.
    lying = frozenset(number for number in things if layout.places[number] != NOTHING)
    if verb not in _VERBS or not lying or layout.held in things or not _makes_sense(layout, verb, kind, lying):
        return None
    return Clause(_VERBS[verb], lying, Phrase(kind, color, "", len(lying) > 1), strict=False, mark=mark)


def _makes_sense(layout: Layout, verb: str, kind: str, things: frozenset[int]) -> bool:
    if verb == "open":
        return kind == "door" and all(layout.doors[number] != OPEN for number in things)
    if verb == "pick_up":
        return kind != "door"
    return layout.cells[layout.start + steps_of(layout.stride)[layout.facing]] not in things


def words(layout: Layout) -> list[str]:
    """All that could be asked for in these rooms, whether it makes sense or not."""
    return sorted({told(verb, thing) for verb in _VERBS for thing in layout.things})


def reached(room: Room) -> Iterator[str]:
    """What an episode has done by now, the hardest first."""
    things, before = room.layout.things, room.layout.doors
    opened = [number for number, state in enumerate(room.doors) if state == OPEN and before[number] != OPEN]
    yield from (told("open", things[number]) for number in opened if before[number] == LOCKED)
    if room.held not in (NOTHING, room.layout.held):
        yield told("pick_up", things[room.held])
    yield from (told("open", things[number]) for number in opened)
    content = room.cells[room.ahead()]
    # The verifier looks where things were when something was last dropped.
    if room.steps and content >= 0 and room.known[content] == room.ahead():
        yield told("go_to", things[content])
