"""What a BabyAI mission asks for, and when it is fulfilled, as minigrid's own verifier judges it.

A mission is a tree: clauses ("pick up the red ball") joined by "and", or in order. What has been done so far is kept
apart from it, in a list of marks, so that a saved state is plain numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
"""The primitive actions, numbered as in minigrid."""

CONTINUE, SUCCESS, FAILURE = range(3)
NOTHING = -1
"""No thing: an empty cell, empty hands, no place."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a mission names things: "a grey ball on your left"."""

    kind: str
    """Empty for "object"."""
    color: str
    location: str
    several: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """One demand. `mark` is the place in the list of marks where it remembers what was carried one step ago."""

    verb: Literal["go to", "open", "pick up", "put"]
    things: frozenset[int]
    phrase: Phrase
    strict: bool
    """Whether doing it to another thing ends the episode."""
    mark: int
    beside: frozenset[int] = frozenset()
    beside_phrase: Phrase | None = None


@dataclass(frozen=True, slots=True)
class Both:
    """Two demands in any order; the marks at `mark` and after it say which are met."""

    parts: tuple[Clause, Clause]
    mark: int


@dataclass(frozen=True, slots=True)
class Ordered:
    """One demand, then the other; `mark` says whether the first is met."""

    first: Clause | Both
    second: Clause | Both
    strict: bool
    told_backwards: bool
    """Whether the mission reads "second after you first" and not "first, then second"."""
    mark: int


Goal = Clause | Both | Ordered


@dataclass(slots=True)
class Evidence:
    """What the verifier looks at after a primitive action."""

    action: int
    ahead: int
    """Place of the cell in front of the agent."""
    thing_ahead: int
    opened: bool
    """Whether the thing ahead is an open door."""
    door_ahead: bool
    held: int
    places: list[int]
    """Where each thing was when last looked up: at the start and after every drop."""
    stride: int


def fresh_marks(goal: Goal) -> list[int]:
    """Nothing met, nothing carried before."""
    marks = [0] * (1 + max(place for node in nodes(goal) for place in _places(node)))
    for clause in clauses(goal):
        marks[clause.mark] = NOTHING
    return marks


def nodes(goal: Goal) -> Iterator[Goal]:
    yield goal
    if isinstance(goal, Both):
        yield from goal.parts
    elif isinstance(goal, Ordered):
        yield from nodes(goal.first)
        yield from nodes(goal.second)


def clauses(goal: Goal) -> list[Clause]:
    """The single demands, in the order in which they should be met."""
    return [node for node in nodes(goal) if isinstance(node, Clause)]


def _places(node: Goal) -> tuple[int, ...]:
    return (node.mark, node.mark + 1) if isinstance(node, Both) else (node.mark,)


def due(goal: Goal, marks: list[int]) -> Clause:
    """The demand to work on now."""
    if isinstance(goal, Clause):
        return goal
    if isinstance(goal, Both):
        return goal.parts[1 if marks[goal.mark] else 0]
    return due(goal.second if marks[goal.mark] else goal.first, marks)


def verdict(goal: Goal, marks: list[int], seen: Evidence, mended: bool) -> int:
    """Whether the mission goes on, is fulfilled or has failed; the marks are brought up to date.

    minigrid judges the action that meets the first of two ordered demands by the second one too. Where that one is
    strict ("open the red door", and no other), the mission fails the moment its first half is done. Mended, it goes on.
    """
    if isinstance(goal, Clause):
        return _clause_verdict(goal, marks, seen)
    if isinstance(goal, Both):
        for place, part in enumerate(goal.parts):
            if not marks[goal.mark + place]:
                marks[goal.mark + place] = int(_clause_verdict(part, marks, seen) == SUCCESS)
        return SUCCESS if marks[goal.mark] and marks[goal.mark + 1] else CONTINUE
    if not marks[goal.mark]:
        met = verdict(goal.first, marks, seen, mended)
        if met == FAILURE:
            return FAILURE
        if met == CONTINUE:
            early = goal.strict and verdict(goal.second, marks, seen, mended) == SUCCESS
            return FAILURE if early else CONTINUE
        marks[goal.mark] = 1
        then = verdict(goal.second, marks, seen, mended)
        return CONTINUE if mended and then == FAILURE else then
    return verdict(goal.second, marks, seen, mended)


def _clause_verdict(clause: Clause, marks: list[int], seen: Evidence) -> int:
    if clause.verb == "go to":
        return SUCCESS if seen.ahead in _known(clause.things, seen) else CONTINUE
    if clause.verb == "open":
        if seen.action != TOGGLE:
            return CONTINUE
        if seen.thing_ahead in clause.things and seen.opened:
            return SUCCESS
        return FAILURE if clause.strict and seen.door_ahead else CONTINUE
    held_before, marks[clause.mark] = marks[clause.mark], seen.held
    if clause.verb == "pick up":
        if seen.action != PICKUP:
            return CONTINUE
        if held_before == NOTHING and seen.held in clause.things:
            return SUCCESS
        return FAILURE if clause.strict and seen.held != NOTHING else CONTINUE
    if seen.action != DROP or held_before not in clause.things or seen.held != NOTHING:
        return CONTINUE
    around = (seen.ahead - 1, seen.ahead + 1, seen.ahead - seen.stride, seen.ahead + seen.stride)
    return SUCCESS if any(place in around for place in _known(clause.beside, seen)) else CONTINUE


def _known(things: Collection[int], seen: Evidence) -> list[int]:
    return [seen.places[thing] for thing in things if seen.places[thing] != NOTHING]
