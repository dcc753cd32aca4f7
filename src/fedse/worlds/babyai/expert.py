"""An expert for BabyAI that can be asked in any state.

It knows where everything is and always takes the offer that brings it nearest to what has to be done next: fetch keys,
clear the way, free its hands, then do what the mission asks. minigrid's own bot has to be followed from the first step
on and speaks in primitive actions, so it cannot advise in a restored state or in macro actions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from fedse.worlds.babyai.goals import NOTHING, Clause, due
from fedse.worlds.babyai.offers import Offer
from fedse.worlds.babyai.rooms import EMPTY, LOCKED, OPEN, WALL, Layout, Room
from fedse.worlds.babyai.routes import drop_pose, end_pose, poses_facing, route

Purpose = Literal["target", "put", "key", "box", "clear", "drop", "look"]
_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Advice:
    offer: Offer
    purpose: Purpose
    clause: Clause
    things: frozenset[int]
    """What the purpose is about: the things aimed at, or the thing in the way or in the hands."""
    door: int = NOTHING
    """The locked door a key is for."""


@dataclass(frozen=True, slots=True)
class _Aim:
    poses: Collection[int]
    things: frozenset[int]
    purpose: Purpose
    finish: Literal["", "pick up", "drop", "toggle"]
    door: int = NOTHING


def advise(room: Room, offers: Sequence[Offer], any_finish_counts: bool) -> Advice:
    """What to do now. Where only the last step of an action counts, a door is opened by `toggle` alone."""
    return _advice(_Case(room.layout, room.saved(), tuple(offers), any_finish_counts, room))


@dataclass(frozen=True, slots=True)
class _Case:
    """All that advice depends on."""

    layout: Layout
    state: tuple[Any, ...]
    offers: tuple[Offer, ...]
    any_finish_counts: bool
    room: Room = field(compare=False)


# To find out whether the expert solves a task is to go the way that it shows afterwards.
@lru_cache(maxsize=64)
def _advice(case: _Case) -> Advice:
    return _Adviser(case.room, case.offers, case.any_finish_counts).advice()


class _Adviser:
    def __init__(self, room: Room, offers: Sequence[Offer], any_finish_counts: bool) -> None:
        self.room = room
        self.offers = offers
        self.any_finish_counts = any_finish_counts
        self.clause = due(room.layout.goal, room.marks)
        self.places = room.places()
        self.here = room.at * 4 + room.facing
        self._keys_sought = 0

    def advice(self) -> Advice:
        aim = self._aim(self.clause)
        for _ in range(_DEPTH):
            if aim is None:
                break
            step = self._towards(aim)
            if isinstance(step, Offer):
                return Advice(step, aim.purpose, self.clause, aim.things, aim.door)
            aim = step
        return Advice(self.offers[1], "look", self.clause, self.clause.things)

    # What to aim at

    def _aim(self, clause: Clause) -> _Aim | None:
        room = self.room
        if clause.verb == "go to":
            places = {room.known[thing] for thing in clause.things} - {NOTHING}
            if not places:
                return self._drop(())
            return _Aim(poses_facing(room, places), clause.things, "target", "")
        if clause.verb == "open":
            return self._open(clause)
        if clause.verb == "pick up":
            return self._fetch(clause.things, "target")
        return self._put(clause)

    def _open(self, clause: Clause) -> _Aim | None:
        room = self.room
        # A door that stands open has to be shut first; rather open another one of those meant.
        doors = [door for door in sorted(clause.things) if room.doors[door] != OPEN] or sorted(clause.things)
        ready = [door for door in doors if room.doors[door] != LOCKED or room.has_key_for(door)]
        if ready:
            return _Aim(poses_facing(room, [self.places[door] for door in ready]), frozenset(ready), "target", "toggle")
        return self._key(doors[0])

    def _fetch(self, things: frozenset[int], purpose: Purpose, door: int = NOTHING) -> _Aim | None:
        """Get hold of one of these things."""
        room = self.room
        lying = [self.places[thing] for thing in sorted(things) if self.places[thing] != NOTHING]
        if not lying:
            return self._drop(()) if room.held in things else None
        aim = _Aim(poses_facing(room, lying), things, purpose, "pick up", door)
        if room.held == NOTHING:
            return aim
        way = route(room, aim.poses)
        if way and way.unlocks:
            return aim
        if way and way.locked not in (NOTHING, door):
            return self._key(way.locked)
        return self._drop(aim.poses)

    def _put(self, clause: Clause) -> _Aim | None:
        room = self.room
        spots = [
            self.places[thing] + step
            for thing in sorted(clause.beside)
            if self.places[thing] != NOTHING
            for step in room.ways
            if room.cells[self.places[thing] + step] == EMPTY
        ]
        targets = poses_facing(room, spots)
        if not targets:
            return self._drop(()) if room.held in clause.beside else None
        if room.held in clause.things:
            return _Aim(targets, clause.beside, "put", "drop")
        aim = self._fetch(clause.things, "target")
        if aim is None or aim.finish != "pick up" or room.held != NOTHING:
            return aim
        return self._cleared(aim, targets) or aim

    def _cleared(self, aim: _Aim, targets: Collection[int]) -> _Aim | None:
        """What has to be done with free hands before the thing aimed at is carried to `targets`."""
        room = self.room
        way = route(room, aim.poses)
        if way is None or way.blocker != NOTHING or way.locked != NOTHING:
            return None
        carried = room.cells[(way.end >> 2) + room.ways[way.end & 3]]
        onward = route(room, targets, way.end, ignored=carried)
        if onward is None:
            return None
        if onward.blocker != NOTHING:
            return self._clear(onward.blocker, targets)
        if onward.locked != NOTHING and onward.locked != aim.door:
            return self._key(onward.locked)
        return None

    def _key(self, door: int) -> _Aim | None:
        """Get what opens a locked door."""
        self._keys_sought += 1
        if self._keys_sought > _DEPTH:
            return None
        room, things = self.room, self.room.layout.things
        fitting = [n for n, thing in enumerate(things) if thing.kind == "key" and thing.color == things[door].color]
        keys = frozenset(n for n in fitting if self.places[n] != NOTHING)
        if not keys:
            boxes = frozenset(
                n for n, thing in enumerate(things) if thing.inside in fitting and self.places[n] != NOTHING
            )
            if not boxes:
                return None
            return _Aim(poses_facing(room, [self.places[box] for box in boxes]), boxes, "box", "toggle", door)
        aim = self._fetch(keys, "key", door)
        if aim is None or aim.finish != "pick up" or room.held != NOTHING:
            return aim
        return self._cleared(aim, poses_facing(room, [self.places[door]])) or aim

    def _clear(self, blocker: int, onward: Collection[int]) -> _Aim | None:
        if self.room.held != NOTHING:
            return self._drop(onward)
        return _Aim(poses_facing(self.room, [self.places[blocker]]), frozenset([blocker]), "clear", "pick up")

    def _drop(self, onward: Collection[int]) -> _Aim | None:
        """Free the hands where it does not block the way to the poses `onward`."""
        if self.room.held == NOTHING:
            return None
        pose = drop_pose(self.room, onward)
        return None if pose is None else _Aim([pose], frozenset([self.room.held]), "drop", "drop")

    # How to get there

    def _towards(self, aim: _Aim) -> Offer | _Aim | None:
        """The offer to take, or what has to be aimed at before."""
        direct = self._direct(aim)
        if direct is not None:
            return direct
        way = route(self.room, aim.poses)
        if way is None:
            return None
        if way.locked != NOTHING:
            # Things in the way of a locked door are cleared before its key is fetched.
            return self._key(way.locked)
        if way.blocker != NOTHING and not (aim.purpose == "clear" and way.blocker in aim.things):
            return self._clear(way.blocker, aim.poses)
        return self._nearest(way.distance)

    def _direct(self, aim: _Aim) -> Offer | None:
        """An offer that reaches the aim at once."""
        verbs = {"": ("go to",), "pick up": ("pick up",), "toggle": ("toggle",), "drop": ()}[aim.finish]
        if aim.finish == "toggle" and self.any_finish_counts:
            verbs = ("toggle", "open and go through")
        found = [offer for offer in self.offers if offer.verb in verbs and offer.thing in aim.things and offer.steps]
        if found:
            return min(found, key=lambda offer: len(offer.steps))
        if aim.finish == "drop" and self.here in aim.poses:
            return next((offer for offer in self.offers if offer.verb == "drop"), None)
        return None

    def _nearest(self, distance: dict[int, int]) -> Offer | None:
        """Of the offers that move the agent the one after which least is left to go."""
        best, left = None, distance[self.here]
        for offer in self.offers:
            if offer.verb in ("pick up", "drop", "toggle"):
                continue
            after = distance.get(end_pose(self.room, offer), WALL)
            if 0 <= after < left:
                best, left = offer, after
        return best
