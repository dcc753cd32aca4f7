"""Every moment belongs to one span."""

from __future__ import annotations

import ast
import threading

import pytest

from fedse.stopwatch import MEANINGS, REST, Stopwatch, during, running
from sources import modules, tree


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_inner_spans_are_taken_from_outer_ones(clock: Clock) -> None:
    with running(stopwatch := Stopwatch(clock=clock)):
        clock.passes(1)
        with during("decode"):
            clock.passes(2)
            with during("transfer"):
                clock.passes(4)
            clock.passes(8)
            with during("decode"):
                clock.passes(16)
        clock.passes(32)
        assert stopwatch.cut() == {REST: 33, "decode": 26, "transfer": 4}


def test_a_cut_inside_a_span_gives_each_stretch_its_part(clock: Clock) -> None:
    with running(stopwatch := Stopwatch(clock=clock)):
        with during("disk"):
            clock.passes(3)
            assert stopwatch.cut() == {REST: 0, "disk": 3}
            clock.passes(5)
        assert stopwatch.cut() == {"disk": 5, REST: 0}


def test_a_whole_span_has_none_inside(clock: Clock) -> None:
    with running(stopwatch := Stopwatch(clock=clock)):
        with during("recording", whole=True):
            with during("loss"):
                clock.passes(1)
            clock.passes(2)
        with during("loss"):
            clock.passes(4)
        assert stopwatch.cut() == {REST: 0, "recording": 3, "loss": 4}


def test_an_error_closes_its_spans(clock: Clock) -> None:
    with running(stopwatch := Stopwatch(clock=clock)):
        with pytest.raises(KeyError), during("world"), during("recording", whole=True):
            clock.passes(1)
            raise KeyError
        clock.passes(2)
        with during("text"):
            clock.passes(4)
        assert stopwatch.cut() == {REST: 2, "world": 0, "recording": 1, "text": 4}


def test_other_threads_do_not_move_it(clock: Clock) -> None:
    def other() -> None:
        with during("disk"):
            clock.passes(1)

    with running(stopwatch := Stopwatch(clock=clock)):
        with during("decode"):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert stopwatch.cut() == {REST: 0, "decode": 1}


def test_work_that_was_launched_is_waited_for_where_a_span_ends(clock: Clock) -> None:
    launched: list[float] = []

    def settle() -> None:
        while launched:
            clock.passes(launched.pop())

    with running(stopwatch := Stopwatch(settle, clock)):
        with during("loss"):
            launched.append(7)
        launched.append(5)
        with during("backward"):
            launched.append(3)
        assert stopwatch.cut() == {"loss": 7, REST: 5, "backward": 3}


def test_nobody_listens_outside(clock: Clock) -> None:
    stopwatch = Stopwatch(clock=clock)
    with running(stopwatch):
        pass
    with during("decode"):
        clock.passes(1)
    assert "decode" not in stopwatch.cut()


def test_every_span_of_the_source_has_a_meaning_and_every_meaning_a_span() -> None:
    used = {
        node.args[0].value
        for path in modules()
        if "during(" in path.read_text()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "during"
        and isinstance(node.args[0], ast.Constant)
    }
    assert used == MEANINGS.keys() - {REST}
