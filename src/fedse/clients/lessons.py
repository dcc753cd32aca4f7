"""The lessons of a client's round: one, or as many as its mix has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from fedse.clients.experience import RoundMemory
from fedse.clients.requests import Teach
from fedse.types import Adapter, Learned, Lesson, Lessons

SUMMED = ("steps", "tokens")
"""Metrics that count work; all others are told of the last lesson, in which the part that is sent was learned."""


def teach(lessons: Lessons, memory: RoundMemory) -> Generator[Teach, Learned | None, Learned | None]:
    """What came of all of them; None if there was nothing to learn from, or the learner abstained.

    An adapter is made when its lesson is granted: until then others have their turn.
    """
    learned = yield Teach(lambda: memory.lesson(next(lessons)))
    metrics: dict[str, float] = {}
    number = 1
    while learned is not None:
        adapter, told = learned
        metrics = _together(metrics, told)
        number += 1
        try:
            following = lessons.send(adapter)
        except StopIteration as ended:
            return ended.value, metrics
        learned = yield Teach(_further(memory, following, number))
    return None


def _further(memory: RoundMemory, adapter: Adapter, number: int) -> Callable[[], Lesson | None]:
    return lambda: memory.further_lesson(adapter, number)


def _together(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {name: value + before.get(name, 0.0) if name in SUMMED else value for name, value in now.items()}
