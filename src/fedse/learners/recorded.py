"""Forward and backward pass of a pack as one CUDA graph, replayed for every pack of about the same size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from fedse.learners.lora_vector import LoraVector
from fedse.learners.packed_attention import Segments
from fedse.learners.packed_llama import PackedLlama, PackTensors
from fedse.learners.packing import Pack
from fedse.stopwatch import during

_STEPS = 8
"""Sizes between a power of two and the next. More waste less on padding and record more graphs."""
_MORE_TOKENS, _MORE_TARGETS = 1.125, 1.5
"""A pack takes a graph that is there already if it is at most so much larger: recording one takes as long as many passes."""


@dataclass(frozen=True)
class Sizes:
    """What is fixed in a graph."""

    tokens: int
    opening: int
    segments: int
    longest: int
    predicting: int

    @classmethod
    def that_hold(cls, pack: Pack) -> Sizes:
        tokens = _rounded_up(len(pack.ids), _STEPS)
        longest = _rounded_up(max(pack.lengths), 1)
        segments = len(pack.lengths) + -(-(tokens - len(pack.ids)) // longest)
        return cls(tokens, pack.opening, _rounded_up(segments, 1), longest, _rounded_up(len(pack.targets), 2))

    def hold(self, pack: Pack) -> bool:
        """And are not much larger than they must be."""
        least = Sizes.that_hold(pack)
        segments = len(pack.lengths) + -(-(self.tokens - len(pack.ids)) // self.longest)
        return (
            self.opening == pack.opening
            and self.longest >= max(pack.lengths)
            and self.segments >= segments
            and least.tokens <= self.tokens <= _MORE_TOKENS * least.tokens
            and least.predicting <= self.predicting <= _MORE_TARGETS * least.predicting
        )


def _rounded_up(count: int, steps: int) -> int:
    """To one of `steps` evenly spaced sizes between a power of two and the next."""
    step = max(8, (1 << max(0, (count - 1).bit_length() - 1)) // steps)
    return -(-count // step) * step


def filled(pack: Pack, sizes: Sizes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of a pack, padded, one after another: ids, positions, predicting, targets, boundaries.

    Padding is segments of its own at the end; what it predicts has no importance.
    """
    padding = sizes.tokens - len(pack.ids)
    lengths = list(pack.lengths)
    while padding:
        lengths.append(min(padding, sizes.longest))
        padding -= lengths[-1]
    lengths += [0] * (sizes.segments - len(lengths))
    numbers = np.zeros(2 * sizes.tokens + 2 * sizes.predicting + sizes.segments + 1, dtype=np.int64)
    at = 0
    for content, room in (
        (pack.ids, sizes.tokens),
        (pack.positions, sizes.tokens),
        (pack.predicting, sizes.predicting),
        (pack.targets, sizes.predicting),
        (np.cumsum((0, *lengths)), sizes.segments + 1),
    ):
        numbers[at : at + len(content)] = content
        at += room
    return numbers


def unfilled(numbers: torch.Tensor, importance: torch.Tensor, sizes: Sizes) -> PackTensors:
    """The other way round, as views."""
    ids, positions, predicting, targets, boundaries = torch.split(
        numbers, [sizes.tokens, sizes.tokens, sizes.predicting, sizes.predicting, sizes.segments + 1]
    )
    segments = Segments(sizes.opening, sizes.tokens, (), boundaries.to(torch.int32), sizes.longest)
    return PackTensors(ids, positions, predicting, targets, importance, segments)


@dataclass(frozen=True)
class _Graph:
    numbers: torch.Tensor
    importance: torch.Tensor
    loss: torch.Tensor
    replay: Callable[[], None]


class Recorded:
    """Graphs share their memory and stay from round to round, as recording one takes a pass of its own."""

    def __init__(self, llama: PackedLlama, vector: LoraVector) -> None:
        self._llama, self._vector = llama, vector
        self._graphs: dict[Sizes, _Graph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        # Of its own: matrix products have working memory for each stream, and graphs of two adapters run at the same time.
        self._stream = torch.cuda.Stream(llama.device)  # type: ignore[no-untyped-call]

    def add_gradient(self, pack: Pack, importance: float) -> tuple[torch.Tensor, int]:
        """Loss of the pack times `importance`, whose gradient is added to the vector's; tokens that were computed."""
        suitable = [sizes for sizes in self._graphs if sizes.hold(pack)]
        sizes = min(suitable, key=attrgetter("tokens", "predicting"), default=Sizes.that_hold(pack))
        factors = np.zeros(sizes.predicting, dtype=np.float32)
        factors[: len(pack.targets)] = importance
        numbers = filled(pack, sizes)
        if sizes not in self._graphs:
            with during("recording", whole=True):
                self._graphs[sizes] = self._record(sizes, numbers, factors)
        graph = self._graphs[sizes]
        # From pinned memory the copy does not wait for the GPU, so that the next pack is made while this one is computed.
        with during("transfer"):
            graph.numbers.copy_(torch.from_numpy(numbers).pin_memory(), non_blocking=True)
            graph.importance.copy_(torch.from_numpy(factors).pin_memory(), non_blocking=True)
        with during("loss and backward"):
            graph.replay()
            return graph.loss.clone(), sizes.tokens

    def _record(self, sizes: Sizes, numbers: np.ndarray[Any, Any], factors: np.ndarray[Any, Any]) -> _Graph:
        device = self._llama.device
        held = torch.from_numpy(numbers).to(device)
        importance = torch.from_numpy(factors).to(device)
        if not self._graphs:
            self._set_up(unfilled(held, importance, sizes))
        graph = torch.cuda.CUDAGraph()
        # Relaxed: a kernel may be compiled or loaded for these sizes, which is harmless while a graph is recorded.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="relaxed"):
            loss = self._llama.add_gradient(unfilled(held, importance, sizes))
        return _Graph(held, importance, loss, graph.replay)

    def _set_up(self, tensors: PackTensors) -> None:
        """Libraries set themselves up on first use, which cannot be recorded."""
        device = self._llama.device
        before = self._vector.gradient.clone()
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            self._llama.add_gradient(tensors)
        torch.cuda.current_stream(device).wait_stream(self._stream)
        self._vector.gradient.copy_(before)
        # What that pass took cannot be used by the graphs, which have their own memory.
        torch.cuda.empty_cache()
