"""Ways through the rooms for one who knows them: distances to poses, and what stands in the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from fedse.worlds.babyai.goals import FORWARD, LEFT, NOTHING, RIGHT
from fedse.worlds.babyai.offers import Offer
from fedse.worlds.babyai.rooms import EMPTY, LOCKED, OPEN, WALL, Room

_OPENING = 1
_CLEARING = 12
"""A thing in the way has to be picked up, carried off and dropped."""
_UNLOCKING = 40
"""A locked door without its key."""


_DETOUR = 3
"""Extra steps that a thing laid down may cause."""
_NARROW_TRIED = 30


@dataclass(slots=True)
class Route:
    """The way from a pose to the nearest of some poses."""

    distance: dict[int, int]
    """Cost from each pose that is nearer than the start, and from some that are not."""
    end: int
    places: list[int] = field(default_factory=list)
    blocker: int = NOTHING
    """The first thing in the way."""
    locked: int = NOTHING
    """The first locked door on the way whose key is not at hand."""
    unlocks: bool = False
    """Whether the key at hand opens a door on the way."""


def poses_facing(room: Room, places: Collection[int]) -> set[int]:
    """Poses from which one looks at one of these places. One cannot stand in a wall."""
    return {
        (place - room.ways[way]) * 4 + way
        for place in places
        for way in range(4)
        if room.cells[place - room.ways[way]] != WALL
    }


def entering(room: Room, place: int, ignored: int) -> int:
    """Cost of a step onto a place; a thing that will be gone by then counts as nothing."""
    content = room.cells[place]
    if content in (EMPTY, ignored) or place == room.at:
        return 1
    if room.is_door(content):
        state = room.doors[content]
        if state == OPEN:
            return 1
        return 1 + (_UNLOCKING if state == LOCKED and not room.has_key_for(content) else _OPENING)
    return 1 + _CLEARING


def route(room: Room, goals: Collection[int], start: int | None = None, ignored: int = WALL) -> Route | None:
    """The cheapest way from `start` (here and now, if not given) to one of the poses `goals`."""
    start = room.at * 4 + room.facing if start is None else start
    cells, ways = room.cells, room.ways
    # Most steps cost one, so poses are visited wave by wave; those that cost more to come from wait for their wave.
    cost, wave = 0, list(goals)
    distance = dict.fromkeys(wave, 0)
    later: dict[int, list[int]] = {}
    while (wave or later) and start not in distance:
        cost += 1
        following: list[int] = []
        for pose in wave:
            place, way = pose >> 2, pose & 3
            left, right = pose - way + (way - 1) % 4, pose - way + (way + 1) % 4
            if left not in distance:
                distance[left] = cost
                following.append(left)
            if right not in distance:
                distance[right] = cost
                following.append(right)
            behind = place - ways[way]
            back = behind * 4 + way
            if back in distance or cells[behind] == WALL:
                continue
            step = 1 if cells[place] == EMPTY else entering(room, place, ignored)
            if step == 1:
                distance[back] = cost
                following.append(back)
            else:
                later.setdefault(cost - 1 + step, []).append(back)
        for other in later.pop(cost, ()):
            if other not in distance:
                distance[other] = cost
                following.append(other)
        wave = following
    if start not in distance:
        return None
    return _followed(room, distance, start, ignored)


def _followed(room: Room, distance: dict[int, int], start: int, ignored: int) -> Route:
    found = Route(distance, start)
    pose = start
    while distance[pose] > 0:
        place, way = pose >> 2, pose & 3
        ahead = place + room.ways[way]
        step = ahead * 4 + way
        if room.cells[ahead] != WALL:
            cost = entering(room, ahead, ignored)
            if distance.get(step, 1 << 30) + cost == distance[pose]:
                found.places.append(ahead)
                _note(room, found, ahead, cost)
                pose = step
                continue
        left, right = place * 4 + (way - 1) % 4, place * 4 + (way + 1) % 4
        pose = left if distance.get(left, 1 << 30) + 1 == distance[pose] else right
    found.end = pose
    return found


def _note(room: Room, found: Route, place: int, cost: int) -> None:
    content = room.cells[place]
    # Behind a door that the key at hand opens, the hands will be free again.
    if cost == 1 or found.unlocks:
        return
    if not room.is_door(content):
        found.blocker = content if found.blocker == NOTHING else found.blocker
    elif room.doors[content] == LOCKED:
        if room.has_key_for(content):
            found.unlocks = True
        elif found.locked == NOTHING:
            found.locked = content


def end_pose(room: Room, offer: Offer) -> int:
    """Where an offer that moves the agent leaves it; a step against something is not made."""
    at, facing = room.at, room.facing
    opened = offer.thing if offer.verb == "open and go through" else WALL
    for action in offer.steps:
        if action == LEFT:
            facing = (facing - 1) % 4
        elif action == RIGHT:
            facing = (facing + 1) % 4
        elif action == FORWARD:
            ahead = at + room.ways[facing]
            if not (room.is_free(ahead) or room.cells[ahead] == opened):
                break
            at = ahead
    return at * 4 + facing


def drop_pose(room: Room, onward: Collection[int]) -> int | None:
    """The nearest pose from which a thing can be laid down without blocking the way to the poses `onward`."""
    before = route(room, onward)
    start = room.at * 4 + room.facing
    seen, queue = {start}, deque([start])
    narrow: list[int] = []
    while queue:
        pose = queue.popleft()
        place, way = pose >> 2, pose & 3
        ahead = place + room.ways[way]
        if room.cells[ahead] == EMPTY and ahead != room.at:
            if not _is_out_of_the_way(room, ahead):
                narrow.append(pose)
            elif before is None or _stays_short(room, onward, before, ahead):
                return pose
        steps = [place * 4 + (way - 1) % 4, place * 4 + (way + 1) % 4]
        if room.is_free(ahead):
            steps.insert(0, ahead * 4 + way)
        for other in steps:
            if other not in seen:
                seen.add(other)
                queue.append(other)
    for pose in narrow[:_NARROW_TRIED]:
        if before is None or _stays_short(room, onward, before, (pose >> 2) + room.ways[pose & 3]):
            return pose
    return narrow[0] if narrow else None


def _stays_short(room: Room, onward: Collection[int], before: Route, place: int) -> bool:
    """Whether a thing at this place makes the way at most a little longer."""
    start = room.at * 4 + room.facing
    room.cells[place] = room.held
    after = route(room, onward)
    room.cells[place] = EMPTY
    return after is not None and after.distance[start] <= before.distance[start] + _DETOUR


def _is_out_of_the_way(room: Room, place: int) -> bool:
    """Whether the free cells around a place hang together without it."""
    right, down, left, up = room.ways
    ring = (up, up + right, right, right + down, down, down + left, left, left + up)
    free = [room.cells[place + step] == EMPTY or room.is_door(room.cells[place + step]) for step in ring]
    # Only stretches that hold one of the four neighbours count; one can not walk diagonally.
    stretches = 0
    for index in range(0, 8, 2):
        if free[index] and not (free[index - 1] and free[index - 2]):
            stretches += 1
    return stretches <= 1
