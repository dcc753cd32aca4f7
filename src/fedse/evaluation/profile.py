"""A run's time, cut into rounds and evaluations, each divided among spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedse.events import ClientFinished, EpisodeFinished, EpisodesPlayed, Evaluated, Event, RoundFinished, RunStarted
from fedse.stopwatch import REST, Stopwatch

BEGINNING, END = "beginning", "end"


@dataclass(frozen=True)
class Stretch:
    """A part of a run between two events."""

    name: str
    spans: Mapping[str, float]
    """Seconds; they add up to the time that passed."""
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(self.spans.values())

    def to_json(self) -> dict[str, Any]:
        spans = {name: round(seconds, 6) for name, seconds in self.spans.items()}
        return {"name": self.name, "seconds": round(self.seconds, 6), "spans": spans, "counts": dict(self.counts)}


class Profile:
    """A tracker that cuts the stopwatch where rounds and evaluations begin and end."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.stretches: list[Stretch] = []
        self._counts: dict[str, int] = {}

    def record(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.cut(BEGINNING)
            case RoundFinished():
                self.cut(f"round {event.round}")
            case Evaluated():
                self.cut(f"evaluation on {event.split}")
            case EpisodeFinished():
                self._count("episodes", 1)
                self._count(f"episodes to {event.purpose}", 1)
            case EpisodesPlayed():
                self._count("prefilled", event.prefilled)
                self._count("decoded", event.decoded)
            case ClientFinished():
                self._count("learned", int(event.metrics.get("tokens", 0)))

    def cut(self, name: str) -> None:
        """Everything since the last cut was this."""
        spans = self.stopwatch.cut()
        # The longest first; what nobody named comes last.
        ordered = dict(sorted(spans.items(), key=lambda item: (item[0] == REST, -item[1])))
        self.stretches.append(Stretch(name, ordered, self._counts))
        self._counts = {}

    def _count(self, name: str, number: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + number
