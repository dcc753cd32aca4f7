"""Causal attention of conversations that lie end to end: each sees itself and the opening that all share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch

QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Segments:
    """Where conversations begin and end. The first segment is the opening if there is one."""

    opening: int
    """Tokens of the opening; 0: there is none."""
    tokens: int
    """Of all segments."""
    lengths: tuple[int, ...]
    boundaries: torch.Tensor
    """Beginning of each segment and the end of the last, int32, on the device."""
    longest: int
    """No segment is longer."""

    @cached_property
    def key_index(self) -> KeyIndex:
        """Computed once for all layers."""
        return KeyIndex.of(self)

    def slices(self) -> Iterator[slice]:
        at = 0
        for length in self.lengths:
            yield slice(at, at + length)
            at += length


@dataclass(frozen=True)
class KeyIndex:
    """The keys that each segment looks at, one segment after another: the opening, then its own.

    For kernels that compute all segments at once, each with keys of its own. Fixed sizes and no loop, so that a CUDA graph
    can hold it.
    """

    rows: torch.Tensor
    """Which token stands where."""
    boundaries: torch.Tensor
    """As of `Segments`."""
    longest: int
    own: torch.Tensor
    """Where each token stands in its own segment."""
    opening: torch.Tensor
    """Where the copies of the opening stand, segments but the first x tokens of the opening."""

    @classmethod
    def of(cls, segments: Segments) -> KeyIndex:
        opening, edges = segments.opening, segments.boundaries
        number = torch.arange(len(edges), device=edges.device)
        # The first segment is the opening itself.
        boundaries = edges + opening * (number - 1).clamp(min=0)
        tokens = torch.arange(segments.tokens, device=edges.device)
        own = tokens + opening * torch.searchsorted(edges[1:].contiguous(), tokens.to(edges.dtype), right=True)
        copied = torch.arange(opening, device=edges.device)
        copies = boundaries[1:-1, None] + copied
        rows = torch.empty(segments.tokens + copies.numel(), dtype=torch.long, device=edges.device)
        rows.scatter_(0, own, tokens)
        rows.scatter_(0, copies.flatten(), copied.repeat(len(copies)))
        return cls(rows, boundaries.to(torch.int32), segments.longest + opening, own, copies)


class Kernel(Protocol):
    """Softmax attention and its gradient. Queries are tokens x heads x size, keys and values may have fewer heads."""

    def forward(self, qkv: QKV, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Each token attends to the opening and to its own segment up to itself.

        Second comes what the gradient needs: the logarithm of the sum of exponentials, tokens x heads.
        """
        ...

    def backward(
        self,
        gradient: torch.Tensor,
        qkv: QKV,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> QKV: ...


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        segments: Segments,
        scale: float,
        kernel: Kernel,
    ) -> torch.Tensor:
        out, total = kernel.forward((queries, keys, values), segments, scale)
        ctx.save_for_backward(queries, keys, values, out, total)
        ctx.segments, ctx.scale, ctx.kernel = segments, scale, kernel
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        queries, keys, values, out, total = ctx.saved_tensors
        qkv = ctx.kernel.backward(
            gradients[0].contiguous(), (queries, keys, values), out, total, ctx.segments, ctx.scale
        )
        return (*qkv, None, None, None)


def packed_attention(qkv: QKV, segments: Segments, scale: float, kernel: Kernel) -> torch.Tensor:
    out: torch.Tensor = _Attention.apply(*qkv, segments, scale, kernel)  # type: ignore[no-untyped-call]
    return out
