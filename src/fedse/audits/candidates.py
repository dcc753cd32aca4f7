"""Trajectories that a client learned from, and others of the same kind that nobody learned from.

An attack that tells two kinds of trajectories apart has not found members. So both sets are made in one way: the world's
expert shows tasks of one training pool, from which chance chose those that a buffer began with. What could be both is left
out by rules that do not ask for membership:

- tasks that the client explored, whatever came of it (what it found there may be the expert's way word for word);
- conversations that are the same for two tasks, or that stand in another client's buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedse.clients.client import Client
from fedse.clients.site import Place
from fedse.errors import BadInput
from fedse.experience.buffer import Buffer
from fedse.seeds import generator
from fedse.starts.canaries import CATEGORY
from fedse.starts.demonstrations import demonstrate
from fedse.types import Outcome, Purpose, Task, Trajectory
from fedse.worlds.answers import BREAKING

MOST_OTHERS = 1000
"""Tasks that are shown for non-members, in each world."""

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Candidates:
    world: str
    members: Sequence[Trajectory]
    others: Sequence[Trajectory]
    left_out: int
    """Shown, and not used by the rules above."""


def candidates(client: Client, rounds: Sequence[int], elsewhere: Collection[Ids], context: int) -> list[Candidates]:
    """Of each world of a client that took part in `rounds`; `elsewhere` is what other clients remember."""
    buffer = client.experience.buffer
    begun = began_with(buffer)
    try:
        learned = {item.token_ids: item for number in rounds for item in buffer.read(number)}
        attempted = {(item.world, item.task) for item in buffer.attempts(max(rounds, default=0) + 1)}
    finally:
        buffer.close()
    known = {*elsewhere, *(ids for ids, item in learned.items() if item.purpose is not Purpose.DEMONSTRATE)}
    return [
        _of_world(client, place, begun, attempted, learned, known, context) for place in client.site.places.values()
    ]


def began_with(buffer: Buffer) -> dict[tuple[str, str], Ids]:
    """What the buffer began with, by world and task. Canaries are not of the expert's kind."""
    try:
        return {(item.world, item.task): item.token_ids for item in buffer.read(0) if item.category != CATEGORY}
    finally:
        buffer.close()


def _of_world(
    client: Client,
    place: Place,
    begun: dict[tuple[str, str], Ids],
    attempted: Collection[tuple[str, str]],
    learned: Collection[Ids],
    known: Collection[Ids],
    context: int,
) -> Candidates:
    unexplored = [task for task in place.tasks("train") if (place.label, task.id) not in attempted]
    in_buffer = [task for task in unexplored if (place.label, task.id) in begun]
    outside = [task for task in unexplored if (place.label, task.id) not in begun]
    order = generator(client.site.seed, *place.origin, "audit").permutation(len(outside))[:MOST_OTHERS]
    shown = [
        item for task in [*in_buffer, *(outside[index] for index in order)] if (item := _shown(client, place, task))
    ]
    for item in shown:
        if begun.get((place.label, item.task), item.token_ids) != item.token_ids:
            raise BadInput(
                f"client '{client.name}' began with something else than what the expert of '{place.label}' shows of the "
                f"task '{item.task}', so nothing of the same kind can be made that it did not learn from: the audit needs "
                "`start: demonstrations` and an expert that repeats itself."
            )
    times = Counter(item.token_ids for item in shown)
    used = [
        item
        for item in shown
        if times[item.token_ids] == 1 and item.token_ids not in known and any(item.train_mask[1:context])
    ]
    return Candidates(
        place.label,
        [item for item in used if item.token_ids in learned],
        [item for item in used if item.token_ids not in learned],
        len(shown) - len(used),
    )


def _shown(client: Client, place: Place, task: Task) -> Trajectory | None:
    """The expert's way; None where it fails or the world breaks, which no buffer begins with."""
    try:
        shown = demonstrate(client.name, place.label, place.world, task, client.site.chat)
    except BREAKING:
        return None
    return shown if shown.outcome is Outcome.SUCCESS else None
