"""Passes that are kept from round to round, and how it looks when the memory they need is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.packed_llama import is_large
from fedse.networks.training.parallel_passes import ParallelPasses
from fedse.networks.training.passes import Pass, pass_for
from fedse.stopwatch import during
from fedse.types import Adapter

_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class KeptPasses:
    """Those of one network for adapters of one kind; another kind takes their place."""

    def __init__(self, network: Any, checkpointing: bool, make: Callable[[Any, bool], Pass] = pass_for) -> None:
        self._network, self._checkpointing, self._make = network, checkpointing, make
        self._kept: ParallelPasses | None = None
        self._kind: object = None

    @property
    def alone(self) -> bool:
        """Whether only one adapter can be trained at a time. Not known before there was a first one."""
        return self._kept is not None and self._kept.alone

    @property
    def several_pay(self) -> bool:
        """Whether a GPU has room for several adapters' batches at a time."""
        return not is_large(self._network)

    def suit(self, starts: Iterable[Adapter]) -> bool:
        """Whether what is kept does for all of these."""
        return all(_kind(start) == self._kind for start in starts)

    def passes_for(self, start: Adapter) -> ParallelPasses:
        if self._kept is None or not self.suit([start]):
            self._kept = None  # Its graphs and matrices leave the memory before others come.
            with during("adapter"):
                load_adapter(self._network, start)
                train_only(self._network, start)
            self._kept, self._kind = ParallelPasses(self._make(self._network, self._checkpointing)), _kind(start)
        return self._kept


def _kind(start: Adapter) -> object:
    """Adapters of one kind can go through the same pass."""
    return start.layout, start.frozen


def ran_out_of_memory(error: BaseException | None) -> bool:
    """Ending the recording of a graph fails too, and hides the reason behind its own error."""
    return error is not None and (
        any(sign in str(error) for sign in _OUT_OF_MEMORY) or ran_out_of_memory(error.__context__)
    )
