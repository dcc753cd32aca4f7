"""At most so many requests or tokens a minute, whichever threads ask for them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 60.0


@dataclass(eq=False)
class Taken:
    """An amount that was let through, and when."""

    at: float
    amount: float


class RateLimit:
    """Never lets more than `per_minute` through in any 60 seconds; whoever asks first goes first.

    One amount larger than the limit goes through by itself, when nothing else was let through in the last 60 seconds.
    """

    def __init__(
        self,
        per_minute: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._taken: deque[Taken] = deque()
        self._sum = 0.0

    def take(self, amount: float = 1.0) -> Taken:
        """Wait until the amount may go."""
        with self._lock:
            now = self._clock()
            # Those who came before may still be waiting, so nobody's turn is before the last one's.
            at = max(now, self._taken[-1].at) if self._taken else now
            while self._taken and (self._taken[0].at + WINDOW <= at or self._sum + amount > self.per_minute):
                oldest = self._taken.popleft()
                self._sum -= oldest.amount
                at = max(at, oldest.at + WINDOW)
            taken = Taken(at, amount)
            self._taken.append(taken)
            self._sum += amount
        if at > now:
            self._sleep(at - now)
        return taken

    def correct(self, taken: Taken, amount: float) -> None:
        """Put the true amount in the place of an estimate."""
        with self._lock:
            if taken in self._taken:
                self._sum += amount - taken.amount
            taken.amount = amount
