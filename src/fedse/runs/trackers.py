"""Several trackers as one, and who they are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedse.errors import BadInput
from fedse.events import Event, Warned
from fedse.plugins import Choice, build, check_made
from fedse.protocols import Closes, Tracker
from fedse.runs import event_log
from fedse.runs.event_log import EventLog


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


def told_of(
    run: Path, given: Iterable[Tracker] = (), chosen: Iterable[Choice] = (), at_sites: bool = False
) -> Trackers:
    """Everybody who is told of a run: its log first, then those that are given and those that the experiment names. Whoever
    wants to read trajectories is refused where they are at the sites. The run's folder is held."""
    given = list(given)
    for tracker in given:
        check_made("tracker", tracker)
    told: list[Tracker] = [EventLog(run / event_log.NAME, time.time), *given]
    for choice in chosen:
        told.append(build("tracker", choice, run))
        if at_sites and getattr(told[-1], "reads_trajectories", False):
            raise BadInput(
                f"trackers: '{choice.name}' is set to show trajectories, which never leave the sites: set it to show none."
            )
    return Trackers(told)
