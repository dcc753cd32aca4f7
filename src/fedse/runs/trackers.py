"""Several trackers as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedse.protocols import Tracker


class Trackers:
    """Tells several trackers."""

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self.trackers = list(trackers)

    def record(self, event: str, **fields: Any) -> None:
        failed = []
        for tracker in list(self.trackers):
            try:
                tracker.record(event, **fields)
            except Exception as error:
                # Observing a run may never end it: a tracker that fails (a closed terminal) is not asked again.
                self.trackers.remove(tracker)
                failed.append(
                    f"the tracker {type(tracker).__name__} failed at '{event}' ({type(error).__name__}: {error})"
                )
        for what in failed:
            self.record("warning", kind="tracker_failed", message=f"{what} and is told nothing more.")
