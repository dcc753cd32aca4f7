"""A pass over a pack as one CUDA graph, replayed for every pack of about the same size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedse.networks.training.graph_sizes import Sizes, chosen_sizes, fitting
from fedse.networks.training.packed_attention import Openings, Segments
from fedse.networks.training.packed_llama import PackedLlama, PackTensors, owners_of
from fedse.networks.training.token_packing import Pack
from fedse.stopwatch import during


def filled(pack: Pack, sizes: Sizes) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The numbers of a pack, padded, one after another: ids, positions, predicting, targets, boundaries, and which openings
    segments look at.

    Padding is segments of its own at the end; what it predicts has no importance.
    """
    padding = sizes.tokens - len(pack.ids)
    lengths = list(pack.lengths)
    while padding:
        lengths.append(min(padding, sizes.longest))
        padding -= lengths[-1]
    lengths += [0] * (sizes.segments - len(lengths))
    rooms = _rooms(sizes, len(pack.groups))
    numbers = np.zeros(sum(rooms), dtype=np.int64)
    openings = Openings.numbers(pack.groups, sizes.segments)
    contents = (pack.ids, pack.positions, pack.predicting, pack.targets, np.cumsum((0, *lengths)), *openings)
    at = 0
    for content, room in zip(contents, rooms, strict=True):
        numbers[at : at + len(content)] = content
        at += room
    return numbers


def unfilled(numbers: torch.Tensor, importance: torch.Tensor, sizes: Sizes, groups: int = 1) -> PackTensors:
    """The other way round, as views. Several groups are those of several adapters."""
    ids, positions, predicting, targets, boundaries, *openings = torch.split(numbers, _rooms(sizes, groups))
    segments = Segments(
        opening=sizes.opening,
        copies=sizes.copies,
        tokens=sizes.tokens,
        groups=(),
        lengths=(),
        boundaries=boundaries.to(torch.int32),
        longest=sizes.longest,
        openings=Openings(*openings),
    )
    return PackTensors(
        ids, positions, predicting, targets, importance, segments, owners=owners_of(segments, predicting, groups)
    )


def _rooms(sizes: Sizes, groups: int) -> list[int]:
    segments = sizes.segments
    return [sizes.tokens, sizes.tokens, sizes.predicting, sizes.predicting, segments + 1, segments, segments, groups]


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


class PassGraphs:
    """Graphs share their memory and stay from round to round, as recording one takes as long as several passes."""

    def __init__(self, llama: PackedLlama) -> None:
        self._llama = llama
        self._graphs: dict[Sizes, _Graph] = {}
        self._scoring: dict[Sizes, _Graph] = {}
        self._planned: list[Sizes] = []
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(llama.device)  # type: ignore[no-untyped-call]

    def expect(self, needs: Sequence[Sizes]) -> None:
        """Choose the sizes that packs with these needs will go through; a graph is recorded when the first one comes."""
        self._planned = chosen_sizes(needs, list(self._graphs))

    def add_gradient(self, pack: Pack, importance: float | npt.NDArray[np.float32]) -> tuple[torch.Tensor, int]:
        """Loss of the pack times `importance`, or that of each adapter, whose gradient is added to the vector's; tokens that
        were computed."""
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
        device, adapters = self._llama.device, len(self._llama.vectors)
        with during("recording", whole=True):
            held = torch.from_numpy(numbers).to(device)
            importance = torch.from_numpy(factors).to(device)
            if not self._graphs:
                self._set_up(unfilled(held, importance, sizes, adapters))
            graph = torch.cuda.CUDAGraph()
            # Relaxed: a kernel may be compiled or loaded for these sizes, which is harmless while a graph is recorded.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="relaxed"):
                found = compute(unfilled(held, importance, sizes, adapters))
        return _Graph(held, importance, found, graph.replay)

    def _set_up(self, tensors: PackTensors) -> None:
        """Libraries set themselves up on first use, which cannot be recorded."""
        device = self._llama.device
        before = [vector.gradient.clone() for vector in self._llama.vectors]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            self._llama.add_gradient(tensors)
        torch.cuda.current_stream(device).wait_stream(self._stream)
        for vector, gradient in zip(self._llama.vectors, before, strict=True):
            vector.gradient.copy_(gradient)
        # What that pass took cannot be used by the graphs, which have their own memory.
        torch.cuda.empty_cache()
