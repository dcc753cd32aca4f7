"""Adapters that are trained at the same time on one frozen network.

A small network leaves most of a GPU idle when one adapter's batch goes through it. Each adapter has a vector, an optimiser
and CUDA graphs of its own, and a stream in which they run; what the streams compute does not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fedse.networks.training.passes import Pass


class ParallelPasses:
    """Passes with streams, made when they are first needed and kept from round to round, like their graphs."""

    def __init__(self, first: Pass) -> None:
        self._passes = [first]
        self._device = first.vector.values.device
        self._streams: list[torch.cuda.Stream] = []

    @property
    def alone(self) -> bool:
        """Whether there can be but one."""
        return self._passes[0].alone

    def passes(self, count: int) -> list[Pass]:
        while len(self._passes) < count:
            self._passes.append(self._passes[0].beside())
        return self._passes[:count]

    def run(self, steps: Sequence[Callable[[], bool]]) -> None:
        """Call each, in turn, until it returns false. The n-th belongs to the n-th pass."""
        if self._device.type != "cuda" or len(steps) == 1:
            _in_turn(list(steps))
            return
        while len(self._streams) < len(steps):
            self._streams.append(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        streams, current = self._streams[: len(steps)], torch.cuda.current_stream(self._device)
        for stream in streams:
            stream.wait_stream(current)
        try:
            _in_turn([_within(stream, step) for stream, step in zip(streams, steps, strict=True)])
        finally:
            # What was made before may be freed after this, and must not be while a lane still uses it.
            for stream in streams:
                current.wait_stream(stream)


def _in_turn(steps: list[Callable[[], bool]]) -> None:
    while steps:
        steps = [step for step in steps if step()]


def _within(stream: torch.cuda.Stream, step: Callable[[], bool]) -> Callable[[], bool]:
    def inside() -> bool:
        with torch.cuda.stream(stream):
            return step()

    return inside
