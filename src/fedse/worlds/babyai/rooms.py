"""The rooms themselves: walls, things and an agent, with minigrid's rules on a flat list of cells.

minigrid draws a picture after every primitive action, which makes it slow; here nothing is drawn until it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from fedse.seeds import stream
from fedse.worlds.babyai.goals import (
    DROP,
    FORWARD,
    LEFT,
    NOTHING,
    PICKUP,
    RIGHT,
    TOGGLE,
    Evidence,
    Goal,
    fresh_marks,
    verdict,
)

EMPTY, WALL = NOTHING, -2
OPEN, CLOSED, LOCKED = range(3)
MARGIN = 10
"""Cells of wall around the grid, so that no view reaches beyond the list."""


@dataclass(frozen=True, slots=True)
class Thing:
    kind: str
    color: str
    inside: int = NOTHING
    """The thing in a box."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The beginning of an episode. A place is an index into `cells`, rows one after another, margin included."""

    level: str
    mission: str
    goal: Goal
    stride: int
    cells: tuple[int, ...]
    """Per place `EMPTY`, `WALL` or the number of a thing."""
    things: tuple[Thing, ...]
    doors: tuple[int, ...]
    """Per thing `OPEN`, `CLOSED` or `LOCKED`; always `OPEN` for what is not a door."""
    start: int
    facing: int
    """0 right, 1 down, 2 left, 3 up."""
    held: int
    held_from: int
    """Where a thing carried from the start lay, or `NOTHING`."""
    most_steps: int
    """minigrid's own time limit, which scales its reward."""

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The place of each thing, `NOTHING` where it is not on the floor."""
        return tuple(self.where(self.cells))

    @cached_property
    def _floor(self) -> tuple[int, ...]:
        return tuple(place for place, content in enumerate(self.cells) if content != WALL)

    def where(self, cells: Sequence[int]) -> list[int]:
        """The place of each thing when the cells hold this."""
        found = [NOTHING] * len(self.things)
        for place in self._floor:
            content = cells[place]
            if content >= 0:
                found[content] = place
        return found

    @cached_property
    def walls(self) -> tuple[int, ...]:
        return tuple(WALL if content == WALL else EMPTY for content in self.cells)

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """A number per thing, the same for things that look the same."""
        kinds = [(thing.kind, thing.color) for thing in self.things]
        return tuple(kinds.index(kind) for kind in kinds)

    def key(self) -> int:
        """A hash of all that an episode begins with, whatever level it comes from."""
        return stream("babyai layout", repr((self.stride, self.cells, self.things, self.doors, self.start, self.facing)),
                      self.mission)  # fmt: skip


class Room:
    """An episode under way."""

    __slots__ = ("at", "cells", "doors", "facing", "held", "known", "layout", "marks", "mended", "steps", "ways")

    def __init__(self, layout: Layout, mended: bool = True) -> None:
        self.layout = layout
        self.mended = mended
        self.ways = steps_of(layout.stride)
        self.cells = list(layout.cells)
        self.doors = list(layout.doors)
        self.at, self.facing, self.held = layout.start, layout.facing, layout.held
        self.known = list(layout.places)
        if layout.held != NOTHING:
            self.known[layout.held] = layout.held_from
        self.marks = fresh_marks(layout.goal)
        self.steps = 0

    def ahead(self) -> int:
        return self.at + self.ways[self.facing]

    def is_door(self, content: int) -> bool:
        return content >= 0 and self.layout.things[content].kind == "door"

    def is_free(self, place: int) -> bool:
        """Whether one can step there."""
        content = self.cells[place]
        return content == EMPTY or (self.is_door(content) and self.doors[content] == OPEN)

    def has_key_for(self, door: int) -> bool:
        if self.held == NOTHING:
            return False
        held = self.layout.things[self.held]
        return held.kind == "key" and held.color == self.layout.things[door].color

    def step(self, action: int) -> int:
        """One primitive action; `CONTINUE`, `SUCCESS` or `FAILURE`."""
        self.steps += 1
        if action == LEFT:
            self.facing = (self.facing - 1) % 4
        elif action == RIGHT:
            self.facing = (self.facing + 1) % 4
        else:
            self._handle(action, self.ahead())
        ahead = self.ahead()
        content = self.cells[ahead]
        is_door = self.is_door(content)
        opened = is_door and self.doors[content] == OPEN
        evidence = Evidence(action, ahead, content, opened, is_door, self.held, self.known, self.layout.stride)
        return verdict(self.layout.goal, self.marks, evidence, self.mended)

    def _handle(self, action: int, ahead: int) -> None:
        content = self.cells[ahead]
        if action == FORWARD:
            if self.is_free(ahead):
                self.at = ahead
        elif action == PICKUP:
            if self.held == NOTHING and content >= 0 and not self.is_door(content):
                self.held, self.cells[ahead] = content, EMPTY
        elif action == DROP:
            if self.held != NOTHING and content == EMPTY:
                self.cells[ahead], self.held = self.held, NOTHING
            # minigrid looks up where things are only now, so until a drop a thing picked up counts as where it lay.
            self.known = self.places()
        elif action == TOGGLE and content >= 0:
            thing = self.layout.things[content]
            if thing.kind == "box":
                self.cells[ahead] = thing.inside
            elif thing.kind == "door" and (self.doors[content] != LOCKED or self.has_key_for(content)):
                self.doors[content] = CLOSED if self.doors[content] == OPEN else OPEN

    def places(self) -> list[int]:
        """Where each thing lies now."""
        return self.layout.where(self.cells)

    def reward(self) -> float:
        """What minigrid pays for a finish at this moment."""
        return 1 - 0.9 * self.steps / self.layout.most_steps

    def saved(self) -> tuple[Any, ...]:
        return (self.at, self.facing, self.held, self.steps, tuple(self.places()), tuple(self.doors),
                tuple(self.known), tuple(self.marks))  # fmt: skip

    def restore(self, saved: Any) -> None:
        self.at, self.facing, self.held, self.steps, places, doors, known, marks = saved
        self.cells = list(self.layout.walls)
        for thing, place in enumerate(places):
            if place != NOTHING:
                self.cells[place] = thing
        self.doors, self.known, self.marks = list(doors), list(known), list(marks)


@lru_cache(maxsize=64)
def steps_of(stride: int) -> tuple[int, int, int, int]:
    """What a step right, down, left and up adds to a place."""
    return (1, stride, -1, -stride)


Sight = list[tuple[int, int, int, int]]
"""Cells in view: steps ahead, steps to the right (negative: left), place, content. Near rows first, left to right."""


def look(room: Room, size: int) -> Sight:
    """The cells an agent sees in a square of `size` before it, by minigrid's rule of what hides what."""
    cells, doors = room.cells, room.doors
    way, side = room.ways[room.facing], room.ways[(room.facing + 1) % 4]
    half, last = size // 2, size - 1
    row = [False] * size
    row[half] = True
    found: Sight = []
    first = room.at - half * side
    for ahead in range(size):
        contents = [cells[first + index * side] for index in range(size)]
        clear = [content == EMPTY or (content >= 0 and doors[content] == OPEN) for content in contents]
        beyond = [False] * size
        for index in range(last):
            if row[index] and clear[index]:
                row[index + 1] = beyond[index] = beyond[index + 1] = True
        for index in range(last, 0, -1):
            if row[index] and clear[index]:
                row[index - 1] = beyond[index] = beyond[index - 1] = True
        for index in range(size):
            if row[index]:
                found.append((ahead, index - half, first + index * side, contents[index]))
        row = beyond
        if True not in row:
            break
        first += way
    return found


def picture(room: Room, size: int) -> tuple[Any, ...]:
    """What the view looks like: two states with the same picture cannot be told apart by looking."""
    looks, doors = room.layout.looks, room.doors
    return (
        -1 if room.held == NOTHING else looks[room.held],
        [
            (ahead, right, content if content < 0 else (looks[content], doors[content]))
            for ahead, right, place, content in look(room, size)
            if place != room.at
        ],
    )
