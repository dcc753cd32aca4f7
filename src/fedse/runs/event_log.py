"""events.jsonl: what happened in a run, a line each, for people and tools. The run is whole without it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedse.events import VERSION, EpisodeFinished, Event, from_json
from fedse.stopwatch import during
from fedse.storage import strict_json

NAME = "events.jsonl"


class EventLog:
    """Appends to the log. What happens to this file never stops a run."""

    SKIPPED = (EpisodeFinished,)

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self.clock = clock
        self._begun = False

    def record(self, event: Event) -> None:
        if isinstance(event, self.SKIPPED):
            return
        if not self._begun:
            _drop_torn_line(self.path)
            self._begun = True
        line = json.dumps({"time": round(self.clock(), 3), "version": VERSION, **event.to_json()}, default=str)
        try:
            with during("disk"), self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            # Observing a run may never end it; the round itself will say that the disk is full.
            with suppress(OSError):
                _drop_torn_line(self.path)


@dataclass(frozen=True)
class Logged:
    """An event, when it happened, and where in the log the next one begins."""

    time: float
    event: Event
    after: int


class EventReader:
    """Reads a log from a place on, as far as it is written. Ask again for what came since."""

    def __init__(self, path: Path, place: int = 0) -> None:
        self.path = path
        self.place = place

    @classmethod
    def from_now_on(cls, path: Path) -> EventReader:
        return cls(path, path.stat().st_size if path.is_file() else 0)

    def new(self) -> list[Logged]:
        """Whole lines that were not read yet. Those that nobody can read are left out: a log may be damaged."""
        try:
            with self.path.open("rb") as file:
                # A log that is shorter than what was read of it is another one.
                self.place = self.place if self.place <= os.fstat(file.fileno()).st_size else 0
                file.seek(self.place)
                content = file.read()
        except OSError:
            return []
        found = []
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            self.place += len(line)
            if (event := _event_in(line)) is not None:
                found.append(Logged(*event, self.place))
        return found


def _event_in(line: bytes) -> tuple[float, Event] | None:
    """With its time; None for a line that nobody can read."""
    try:
        found = strict_json.parse(line.decode(), infinite=True)
        event = from_json(found) if isinstance(found, dict) else None
        return None if event is None else (float(found.get("time", 0.0)), event)
    except (ValueError, TypeError, OverflowError):
        return None


def _drop_torn_line(path: Path) -> None:
    """A killed process can leave half a line behind; cut it off, so that every line stays readable."""
    # Whatever stands there in place of a log, a run goes on without one.
    with suppress(OSError):
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            os.truncate(path, whole)
