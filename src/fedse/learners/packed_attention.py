"""Causal attention of conversations that lie end to end: each sees itself and the opening that all share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Segments:
    """Where conversations begin and end. The first segment is the opening if there is one."""

    opening: int
    """Tokens of the opening; 0: there is none."""
    lengths: tuple[int, ...]
    boundaries: torch.Tensor
    """Beginning of each segment and the end of the last, int32, on the device."""
    longest: int
    """No segment is longer."""

    def slices(self) -> Iterator[slice]:
        at = 0
        for length in self.lengths:
            yield slice(at, at + length)
            at += length


class Kernel(Protocol):
    """Softmax attention and its gradient. Queries are tokens x heads x size, keys and values may have fewer heads.

    Forward passes also give the logarithm of the sum of exponentials, tokens x heads, with which parts can be joined.
    """

    def within(self, three: Three, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Each segment attends to itself, causally."""
        ...

    def across(self, three: Three, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """All queries attend to all keys."""
        ...

    def within_backward(
        self,
        gradient: torch.Tensor,
        three: Three,
        out: torch.Tensor,
        total: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> Three: ...

    def across_backward(
        self, gradient: torch.Tensor, three: Three, out: torch.Tensor, total: torch.Tensor, scale: float
    ) -> Three: ...


class _Attention(torch.autograd.Function):
    """Attention over two sets of keys is the mean of both, weighted by their sums of exponentials.

    With the joint result and the joint sum, the gradient of each part is that of ordinary attention.
    """

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
        out, total = kernel.within((queries, keys, values), segments, scale)
        opening = segments.opening
        if opening:
            there, there_total = kernel.across((queries[opening:], keys[:opening], values[:opening]), scale)
            here, here_total = out[opening:], total[opening:]
            joint = torch.logaddexp(here_total, there_total)
            here.mul_((here_total - joint).exp_()[..., None]).addcmul_(there, (there_total - joint).exp_()[..., None])
            here_total.copy_(joint)
        ctx.save_for_backward(queries, keys, values, out, total)
        ctx.segments, ctx.scale, ctx.kernel = segments, scale, kernel
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        queries, keys, values, out, total = ctx.saved_tensors
        segments, scale, kernel = ctx.segments, ctx.scale, ctx.kernel
        gradient = gradient.contiguous()
        to_queries, to_keys, to_values = kernel.within_backward(
            gradient, (queries, keys, values), out, total, segments, scale
        )
        opening = segments.opening
        if opening:
            there = kernel.across_backward(
                gradient[opening:],
                (queries[opening:], keys[:opening], values[:opening]),
                out[opening:],
                total[opening:],
                scale,
            )
            to_queries[opening:] += there[0]
            to_keys[:opening] += there[1]
            to_values[:opening] += there[2]
        return to_queries, to_keys, to_values, None, None, None


def packed_attention(three: Three, segments: Segments, scale: float, kernel: Kernel) -> torch.Tensor:
    out: torch.Tensor = _Attention.apply(*three, segments, scale, kernel)  # type: ignore[no-untyped-call]
    return out
