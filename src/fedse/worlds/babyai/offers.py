"""What can be done from where one stands: the macro actions, each a walk through what is in view.

Clean: a walk leads only over free cells that are seen, so every offer can be carried out.
Original: the walk may lead over cells that are not seen and through closed doors, and numbers count only the things
that can be reached, as in the original.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedse.worlds.babyai.goals import DROP, FORWARD, LEFT, NOTHING, PICKUP, RIGHT, TOGGLE
from fedse.worlds.babyai.rooms import CLOSED, EMPTY, LOCKED, MARGIN, OPEN, WALL, Room, Sight

VIEW = 7
"""Side of the square that minigrid's agents see."""


@dataclass(frozen=True, slots=True)
class Offer:
    verb: str
    """turn left, turn right, move forward, go to, pick up, drop, toggle, go through, open and go through."""
    thing: int
    number: int
    """Which of the things of that name; 0 where the name alone is enough."""
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A thing in view, with its number among those of the same name, the nearest being 1."""

    thing: int
    ahead: int
    right: int
    place: int
    number: int
    is_one_of_many: bool


def name(room: Room, thing: int) -> tuple[str, str, str]:
    """Colour, state (of a door) and kind."""
    is_door = room.is_door(thing)
    item = room.layout.things[thing]
    return item.color, ("open", "closed", "locked")[room.doors[thing]] if is_door else "", item.kind


def items(room: Room, sight: Sight) -> list[Item]:
    """The things in view, nearest first."""
    seen = [cell for cell in sight if cell[3] >= 0 and cell[2] != room.at]
    # Among equally near things the original goes by rows, the farthest first.
    seen.sort(key=lambda cell: (cell[0] + abs(cell[1]), -cell[0], cell[1]))
    names = [name(room, cell[3]) for cell in seen]
    return [
        Item(thing, ahead, right, place, names[: index + 1].count(names[index]), names.count(names[index]) > 1)
        for index, (ahead, right, place, thing) in enumerate(seen)
    ]


Walks = tuple[dict[int, int], dict[int, int], dict[int, tuple[int, int]]]
"""Pose in which each place is first faced, pose in which it is first stood on, and how each pose was come by.

A pose is a place times four plus a direction.
"""


def clean_walks(room: Room, sight: Sight, seen: Iterable[Item]) -> Walks:
    """Shortest walks over the free cells in view, until everything in view that can be faced is, and open doors stood in."""
    free = {place for _, _, place, content in sight if content == EMPTY or room.is_free(place)} | {room.at}
    ways = room.ways
    to_face = {item.place for item in seen}
    to_enter = to_face & free
    start = room.at * 4 + room.facing
    came: dict[int, tuple[int, int]] = {start: (start, -1)}
    facing: dict[int, int] = {}
    standing: dict[int, int] = {}
    queue = deque([start])
    while queue and (to_face or to_enter):
        pose = queue.popleft()
        place, way = pose >> 2, pose & 3
        ahead = place + ways[way]
        if ahead in to_face:
            facing[ahead] = pose
            to_face.remove(ahead)
        if place in to_enter:
            standing[place] = pose
            to_enter.remove(place)
        forward = ahead * 4 + way
        if ahead in free and forward not in came:
            came[forward] = (pose, FORWARD)
            queue.append(forward)
        left, right = pose - way + (way - 1) % 4, pose - way + (way + 1) % 4
        if left not in came:
            came[left] = (pose, LEFT)
            queue.append(left)
        if right not in came:
            came[right] = (pose, RIGHT)
            queue.append(right)
    return facing, standing, came


def original_walks(room: Room, sight: Sight) -> Walks:
    """The original's search: what is not seen counts as free, and of two ways to a pose the later found is kept."""
    stride, ways = room.layout.stride, room.ways
    # Things whose coordinates are negative were passed over, which no walk inside the outer wall can notice.
    barred = {
        place for _, _, place, content in sight if content == WALL or (content >= 0 and not room.is_door(content))
    }
    columns, rows = _window(room)
    open_places = {row * stride + column for row in rows for column in columns} - barred
    start = room.at * 4 + room.facing
    came: dict[int, tuple[int, int]] = {start: (start, -1)}
    facing: dict[int, int] = {}
    standing: dict[int, int] = {}
    done: set[int] = set()
    queue = deque([start])
    while queue:
        pose = queue.popleft()
        place, way = pose >> 2, pose & 3
        ahead = place + ways[way]
        if pose not in done:
            done.add(pose)
            facing.setdefault(ahead, pose)
            standing.setdefault(place, pose)
        forward = ahead * 4 + way
        if ahead in open_places and forward not in done:
            came[forward] = (pose, FORWARD)
            queue.append(forward)
        left, right = pose - way + (way - 1) % 4, pose - way + (way + 1) % 4
        if left not in done:
            came[left] = (pose, LEFT)
            queue.append(left)
        if right not in done:
            came[right] = (pose, RIGHT)
            queue.append(right)
    return facing, standing, came


def _window(room: Room) -> tuple[range, range]:
    """Columns and rows among which the original searches: the view, and one more line on some sides."""
    stride = room.layout.stride
    x, y = room.at % stride, room.at // stride
    half, reach = VIEW // 2, VIEW - 1
    columns, rows = (
        (range(x - 1, x + reach + 1), range(y - half, y + half + 1)),
        (range(x - half - 1, x + half + 1), range(y - 1, y + reach + 1)),
        (range(x - reach, x + 1), range(y - half - 1, y + half + 1)),
        (range(x - half, x + half + 1), range(y - reach, y + 1)),
    )[room.facing]
    return columns, rows


def _steps(came: dict[int, tuple[int, int]], pose: int) -> tuple[int, ...]:
    found = []
    while came[pose][1] >= 0:
        pose, action = came[pose]
        found.append(action)
    return tuple(reversed(found))


def clean_offers(room: Room, sight: Sight, seen: Sequence[Item]) -> list[Offer]:
    """All that can be done, and does something."""
    facing, standing, came = clean_walks(room, sight, seen)
    offers = [Offer("turn left", NOTHING, 0, (LEFT,)), Offer("turn right", NOTHING, 0, (RIGHT,))]
    ahead = room.ahead()
    if room.is_free(ahead):
        offers.append(Offer("move forward", NOTHING, 0, (FORWARD,)))
    content = room.cells[ahead]
    if room.held != NOTHING and content == EMPTY:
        offers.append(Offer("drop", room.held, 0, (DROP,)))
    if content >= 0 and (
        room.layout.things[content].kind == "box"
        or (room.is_door(content) and (room.doors[content] != LOCKED or room.has_key_for(content)))
    ):
        offers.append(Offer("toggle", content, 0, (TOGGLE,)))
    for item in seen:
        pose = facing.get(item.place)
        if pose is None:
            continue
        thing, number = item.thing, item.number if item.is_one_of_many else 0
        steps = _steps(came, pose)
        if steps:
            offers.append(Offer("go to", thing, number, steps))
        if not room.is_door(thing):
            if room.held == NOTHING:
                offers.append(Offer("pick up", thing, number, (*steps, PICKUP)))
        elif room.doors[thing] == OPEN:
            if item.place in standing:
                offers.append(Offer("go through", thing, number, _steps(came, standing[item.place])))
        elif room.doors[thing] == CLOSED or room.has_key_for(thing):
            offers.append(Offer("open and go through", thing, number, (*steps, TOGGLE, FORWARD)))
    return offers


def original_offers(room: Room, sight: Sight, seen: Iterable[Item]) -> list[Offer]:
    """The original's list, in its order."""
    facing, standing, came = original_walks(room, sight)
    seen = list(seen)
    offers = [Offer("turn left", NOTHING, 0, (LEFT,)), Offer("turn right", NOTHING, 0, (RIGHT,))]
    if barrier(room, sight)[1] > 1:
        offers.append(Offer("move forward", NOTHING, 0, (FORWARD,)))
    reached = {item.thing: _steps(came, facing[item.place]) for item in seen if item.place in facing}
    if room.held == NOTHING:
        counts: dict[tuple[str, str, str], int] = {}
        for item in seen:
            if not room.is_door(item.thing) and item.thing in reached:
                number = _count(counts, name(room, item.thing))
                offers.append(Offer("pick up", item.thing, number, (*reached[item.thing], PICKUP)))
    elif room.cells[room.ahead()] == EMPTY or room.is_door(room.cells[room.ahead()]):
        offers.append(Offer("drop", room.held, 0, (DROP,)))
    toggles: list[Offer] = []
    for item in seen:
        if not room.is_door(item.thing):
            continue
        if room.doors[item.thing] == OPEN:
            if item.place in standing:
                steps = _steps(came, standing[item.place])
                offers.append(Offer("go through", item.thing, item.number, steps))
        elif item.thing in reached and (room.doors[item.thing] == CLOSED or room.has_key_for(item.thing)):
            steps = reached[item.thing]
            offers.append(Offer("open and go through", item.thing, item.number, (*steps, TOGGLE, FORWARD)))
            if not steps and not toggles:
                toggles.append(Offer("toggle", item.thing, 0, (TOGGLE,)))
                offers += toggles
    counts = {}
    for item in seen:
        if item.thing in reached:
            number = _count(counts, name(room, item.thing))
            offers.append(Offer("go to", item.thing, number, reached[item.thing]))
    return offers


def _count(counts: dict[tuple[str, str, str], int], key: tuple[str, str, str]) -> int:
    counts[key] = counts.get(key, 0) + 1
    return counts[key]


def barrier(room: Room, sight: Sight) -> tuple[str, int]:
    """The nearest wall or box straight ahead in view and how far it is; a large number where there is none."""
    for ahead, right, _, content in sight:
        if right == 0 and ahead > 0:
            if content == WALL:
                return "wall", ahead
            if content >= 0 and room.layout.things[content].kind == "box":
                return "box", ahead
    return "", MARGIN * 100
