from __future__ import annotations

import math
import sys
import threading

from clock import Clock
from fedse.servers.rate_limit import RateLimit


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


def test_many_threads_share_one_limit() -> None:
    waits: list[float] = []
    limited = RateLimit(4, lambda: 0.0, waits.append)
    everybody = threading.Barrier(8)

    def work() -> None:
        everybody.wait()
        for _ in range(100):
            limited.take()

    threads = [threading.Thread(target=work) for _ in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(waits) == [60.0 * window for window in range(1, 200) for _ in range(4)]
