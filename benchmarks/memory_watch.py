"""A stopwatch that also notes how much of the GPU's memory each span had at most."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from fedse.stopwatch import Stopwatch

LEAST = 1e-3
"""Seconds of a span that is looked at: a look takes time too. What a shorter one had counts for the next that is."""
GIB = 2**30


class MemoryWatch(Stopwatch):
    """`allocated` is what tensors took; `reserved` is all that torch held, recorded graphs and free blocks among it.

    Without a GPU nothing is noted.
    """

    def __init__(
        self, settle: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(settle, clock)
        self._most: dict[str, dict[str, float]] = {}

    def _charge(self) -> None:
        before = self._spent.get(self._now, 0.0)
        super()._charge()
        if self._spent[self._now] - before >= LEAST:
            known = self._most.setdefault(self._now, {})
            known |= {name: max(gib, known.get(name, 0.0)) for name, gib in seen().items()}

    def cut_memory(self) -> dict[str, dict[str, float]]:
        """GiB of each span since the last time."""
        most, self._most = self._most, {}
        return {span: {name: round(gib, 2) for name, gib in found.items()} for span, found in most.items() if found}


def seen() -> dict[str, float]:
    """GiB, the most since the last time; nothing while no GPU is in use."""
    if not torch.cuda.is_initialized():
        return {}
    most = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    torch.cuda.reset_peak_memory_stats()
    return {name: count / GIB for name, count in most.items()}
