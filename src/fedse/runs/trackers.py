"""Several trackers as one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from fedse.events import Event, Warned
from fedse.protocols import Closes, Tracker


class Trackers:
    """Tells several trackers."""

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self.trackers = list(trackers)

    def record(self, event: Event) -> None:
        failed = []
        for tracker in list(self.trackers):
            try:
                tracker.record(event)
            except Exception as error:
                # Observing a run may never end it: a tracker that fails (a closed terminal) is not asked again.
                self.trackers.remove(tracker)
                failed.append(
                    f"the tracker {type(tracker).__name__} failed at '{event.name}' ({type(error).__name__}: {error})"
                )
        for what in failed:
            self.record(Warned(kind="tracker_failed", message=f"{what} and is told nothing more."))

    def close(self) -> None:
        for tracker in self.trackers:
            if isinstance(tracker, Closes):
                # As above: what was told is told, and the run is complete.
                with suppress(Exception):
                    tracker.close()
