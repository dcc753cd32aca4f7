"""A pass over a pack as one CUDA graph, replayed for every pack of about the same size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch

from fedse.networks.training.graph_sizes import Sizes, chosen_sizes, fitting
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_attention import Segments
from fedse.networks.training.packed_llama import PackedLlama, PackTensors
from fedse.networks.training.token_packing import Pack
from fedse.stopwatch import during

_STREAMS = 32
"""That PyTorch has for a GPU."""


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
    found: torch.Tensor
    replay: Callable[[], None]

    def of(self, numbers: np.ndarray[Any, Any], factors: np.ndarray[Any, Any] | None = None) -> torch.Tensor:
        """What the pass finds of other contents, where the next replay writes too."""
        # From pinned memory the copy does not wait for the GPU, so that the next pack is made while this one is computed.
        with during("transfer"):
            self.numbers.copy_(torch.from_numpy(numbers).pin_memory(), non_blocking=True)
            if factors is not None:
                self.importance.copy_(torch.from_numpy(factors).pin_memory(), non_blocking=True)
        self.replay()
        return self.found


_HOLDERS: WeakValueDictionary[int, PassGraphs] = WeakValueDictionary()
"""Who records in which stream."""


class PassGraphs:
    """Graphs share their memory and stay from round to round, as recording one takes as long as several passes."""

    def __init__(self, llama: PackedLlama, vector: LoraVector) -> None:
        self._llama, self._vector = llama, vector
        self._graphs: dict[Sizes, _Graph] = {}
        self._scoring: dict[Sizes, _Graph] = {}
        self._planned: list[Sizes] = []
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = self._own_stream()

    def _own_stream(self) -> torch.cuda.Stream:
        """One in which no other records: matrix products have working memory for each stream, which is part of their graphs,
        and graphs of two adapters run at the same time. PyTorch hands out the same few streams again and again."""
        for _ in range(_STREAMS):
            stream = torch.cuda.Stream(self._llama.device)  # type: ignore[no-untyped-call]
            if _HOLDERS.setdefault(stream.cuda_stream, self) is self:
                return stream
        raise RuntimeError(f"{len(_HOLDERS)} adapters are trained at the same time; a GPU has {_STREAMS} streams.")

    def expect(self, needs: Sequence[Sizes]) -> None:
        """Choose the sizes that packs with these needs will go through; a graph is recorded when the first one comes."""
        self._planned = chosen_sizes(needs, list(self._graphs))

    def add_gradient(self, pack: Pack, importance: float | npt.NDArray[np.float32]) -> tuple[torch.Tensor, int]:
        """Loss of the pack times `importance`, whose gradient is added to the vector's; tokens that were computed."""
        need = Sizes.of_pack(pack)
        sizes = fitting(need, [*self._graphs, *self._planned]) or need.rounded_up()
        factors = np.zeros(sizes.predicting, dtype=np.float32)
        factors[: len(pack.targets)] = importance
        numbers = filled(pack, sizes)
        if sizes not in self._graphs:
            self._graphs[sizes] = self._recorded(self._llama.add_gradient, sizes, numbers, factors)
        with during("loss and backward"):
            return self._graphs[sizes].of(numbers, factors).clone(), sizes.tokens

    def log_probabilities(self, pack: Pack) -> torch.Tensor | None:
        """Of the pack's targets, without a gradient. None in sizes that no recorded gradient has: a recording pays where the
        same sizes come again, and whoever only scores may come once."""
        sizes = fitting(Sizes.of_pack(pack), self._graphs)
        if sizes is None:
            return None
        numbers = filled(pack, sizes)
        if sizes not in self._scoring:
            nothing = np.zeros(sizes.predicting, dtype=np.float32)
            self._scoring[sizes] = self._recorded(self._llama.log_probabilities, sizes, numbers, nothing)
        return self._scoring[sizes].of(numbers)[: len(pack.targets)]

    def _recorded(
        self,
        compute: Callable[[PackTensors], torch.Tensor],
        sizes: Sizes,
        numbers: np.ndarray[Any, Any],
        factors: np.ndarray[Any, Any],
    ) -> _Graph:
        device = self._llama.device
        with during("recording", whole=True):
            held = torch.from_numpy(numbers).to(device)
            importance = torch.from_numpy(factors).to(device)
            if not self._graphs:
                self._set_up(unfilled(held, importance, sizes))
            graph = torch.cuda.CUDAGraph()
            # Relaxed: a kernel may be compiled or loaded for these sizes, which is harmless while a graph is recorded.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="relaxed"):
                found = compute(unfilled(held, importance, sizes))
        return _Graph(held, importance, found, graph.replay)

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
