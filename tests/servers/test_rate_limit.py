from __future__ import annotations

import math
import threading
import time

import pytest

from fedse.servers import rate_limit
from fedse.servers.rate_limit import RateLimit


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def limit(per_minute: float) -> tuple[RateLimit, Clock]:
    clock = Clock()
    return RateLimit(per_minute, lambda: clock.now, clock.sleep), clock


def test_the_first_go_at_once_and_the_next_wait_for_the_window() -> None:
    limited, clock = limit(3)
    went = []
    for _ in range(7):
        limited.take()
        went.append(clock.now)
    assert went == [0, 0, 0, 60, 60, 60, 120]


def test_no_window_of_a_minute_holds_more_than_the_limit() -> None:
    limited, clock = limit(5)
    went = []
    for number in range(40):
        limited.take()
        went.append(clock.now)
        clock.now += (number * 7) % 11
    assert all(later - earlier >= 60 for earlier, later in zip(went, went[5:], strict=False))
    assert went[-1] < 60 * 8


def test_amounts_add_up_and_a_large_one_waits_for_an_empty_window() -> None:
    limited, clock = limit(100)
    limited.take(60)
    clock.now = 10
    limited.take(40)
    limited.take(1)
    assert clock.now == 60, "the 60 had to leave the window"
    limited.take(500)
    assert clock.now == 120, "more than the limit goes alone"
    limited.take(1)
    assert clock.now == 180


def test_a_corrected_estimate_makes_room_or_takes_it() -> None:
    limited, clock = limit(100)
    first = limited.take(90)
    limited.correct(first, 10)
    second = limited.take(90)
    assert clock.now == 0
    limited.correct(second, 95)
    limited.take(1)
    assert clock.now == 60


def test_a_correction_that_comes_after_the_window_changes_nothing_later() -> None:
    limited, clock = limit(10)
    old = limited.take(10)
    limited.take(10)
    assert clock.now == 60
    limited.correct(old, 1000)
    clock.now = 120
    limited.take(10)
    assert clock.now == 120


def test_without_a_limit_nobody_waits() -> None:
    limited, clock = limit(math.inf)
    for _ in range(1000):
        limited.take(1e9)
    assert clock.now == 0


def test_many_threads_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "WINDOW", 0.25)
    limited = RateLimit(4)
    went: list[float] = []

    def work() -> None:
        limited.take()
        went.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    went.sort()
    assert 0.45 < went[-1] - went[0] < 5
    # A thread may wake late, never early.
    assert all(later - earlier > 0.15 for earlier, later in zip(went, went[4:], strict=False))
