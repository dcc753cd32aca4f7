"""Where the time goes. Code says what it is doing with `during`; nobody listens unless a run is profiled.

Each moment belongs to one span, the innermost that is open, so the times of all spans add up to the time that passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

REST = "rest"
MEANINGS = {
    "world": "worlds: resets, steps, lists of tasks, experts; with worker processes, waiting for them",
    "text": "text to tokens and back, reading replies",
    "prefill": "encoding rules and observations",
    "decode": "drawing tokens; with a served model, waiting for it",
    "transfer": "numbers to the model's device and drawn tokens or losses back",
    "adapter": "packing adapters, putting them into the model, taking them out, checking that they arrived",
    "learning": "batches and packs for the learner, and whatever else a learner does",
    "loss": "forward pass of the learner",
    "backward": "backward pass of the learner",
    "loss and backward": "both as one CUDA graph, which cannot be divided",
    "recording": "recording CUDA graphs for sizes that are new",
    "noise": "secret random numbers of a learner under noise",
    "scoring": "log-probabilities of the agent's tokens, for learning rules that need them",
    "optimiser": "clipping and the optimiser's step",
    "aggregate": "checking updates, diagnostics, aggregating",
    "disk": "buffers, journals, updates, rounds, events",
    REST: "everything else",
}

_NOBODY = nullcontext()


class Stopwatch:
    """Divides the time of the thread that made it among spans.

    `settle` is called before the clock is read. On a GPU it waits for what was launched, so that kernels count where they
    were launched; without it they count where the host waits for them.
    """

    def __init__(
        self, settle: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settle = settle
        self._clock = clock
        self._thread = threading.get_ident()
        self._spent: dict[str, float] = {}
        self._now = REST
        self._whole = False
        self._read_at = clock()

    def span(self, name: str, whole: bool) -> AbstractContextManager[None]:
        # Spans of other threads lie beside this one's time, not in it.
        if self._whole or threading.get_ident() != self._thread:
            return _NOBODY
        return self._open(name, whole)

    @contextmanager
    def _open(self, name: str, whole: bool) -> Iterator[None]:
        around = self._now
        self._charge()
        self._now, self._whole = name, whole
        try:
            yield
        finally:
            self._charge()
            self._now, self._whole = around, False

    def cut(self) -> dict[str, float]:
        """Seconds of each span since the last cut, and from now on the next stretch."""
        self._charge()
        spent, self._spent = self._spent, {}
        return spent

    def _charge(self) -> None:
        self.settle()
        now = self._clock()
        self._spent[self._now] = self._spent.get(self._now, 0.0) + now - self._read_at
        self._read_at = now


_running: Stopwatch | None = None


def during(name: str, whole: bool = False) -> AbstractContextManager[None]:
    """The time inside belongs to this span, except what spans inside it take. A whole one has none inside."""
    return _NOBODY if _running is None else _running.span(name, whole)


@contextmanager
def running(stopwatch: Stopwatch) -> Iterator[None]:
    """Listen with this stopwatch."""
    global _running
    before, _running = _running, stopwatch
    try:
        yield
    finally:
        _running = before
