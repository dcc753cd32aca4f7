"""Time for tests of patience: it stands still until somebody waits."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Put it where a module has `time`. What was arranged for a moment happens when that moment has come."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._arranged: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        while (moment := self.next_moment()) <= until:
            self.now = moment
            _, action = self._arranged.pop(0)
            action()
        self.now = until

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        self._arranged.append((self.now + seconds, action))
        self._arranged.sort(key=lambda entry: entry[0])

    def next_moment(self) -> float:
        """When the next of what was arranged happens."""
        return self._arranged[0][0] if self._arranged else float("inf")
