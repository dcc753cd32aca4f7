"""Causal attention of conversations that lie end to end: each sees itself and the opening of its group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from fedse.networks.training.token_packing import Group, Ids

QKV = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Openings:
    """Which opening each segment looks at, on the device."""

    seen: torch.Tensor
    """Tokens of the opening that a segment looks at; 0 where it is an opening itself, or there is none."""
    group: torch.Tensor
    """Number of each segment's group."""
    begins: torch.Tensor
    """Where each group begins, and so its opening."""

    @staticmethod
    def numbers(groups: Sequence[Group], segments: int) -> tuple[Ids, Ids, Ids]:
        """The three of these groups. Segments beyond them, up to so many, count with the last and look at no opening."""
        seen, group = np.zeros(segments, dtype=np.int64), np.full(segments, len(groups) - 1, dtype=np.int64)
        at = 0
        for number, each in enumerate(groups):
            group[at : at + each.segments] = number
            seen[at + 1 : at + each.segments] = each.opening
            at += each.segments
        return seen, group, np.cumsum([0, *(each.tokens for each in groups[:-1])], dtype=np.int64)


@dataclass(frozen=True)
class Segments:
    """Where conversations begin and end. They lie in groups; the first segment of a group is its opening if it has one."""

    opening: int
    """No group's opening has more tokens; 0: none has one."""
    copies: int
    """Room for openings once for each segment that looks at one, in tokens."""
    tokens: int
    """Of all segments."""
    groups: tuple[Group, ...]
    lengths: tuple[int, ...]
    boundaries: torch.Tensor
    """Beginning of each segment and the end of the last, int32, on the device."""
    longest: int
    """No segment is longer."""
    openings: Openings

    @cached_property
    def key_index(self) -> KeyIndex:
        """Computed once for all layers."""
        return KeyIndex.of(self)

    def slices(self) -> Iterator[slice]:
        at = 0
        for length in self.lengths:
            yield slice(at, at + length)
            at += length

    def parts_with_openings(self) -> Iterator[tuple[slice, slice]]:
        """Of each group that has one, the opening and the rest."""
        at = 0
        for group in self.groups:
            if group.opening:
                yield slice(at, at + group.opening), slice(at + group.opening, at + group.tokens)
            at += group.tokens

    def number_of_each_token(self) -> torch.Tensor:
        """Which segment it is in."""
        return _between(self.boundaries, self.tokens)


def _between(edges: torch.Tensor, count: int) -> torch.Tensor:
    """Between which edges each of so many places lies. What is beyond counts with the last."""
    places = torch.arange(count, device=edges.device, dtype=edges.dtype)
    return torch.searchsorted(edges[1:].contiguous(), places, right=True).clamp(max=len(edges) - 2)


@dataclass(frozen=True)
class KeyIndex:
    """The keys that each segment looks at, one segment after another: its opening, then its own.

    For kernels that compute all segments at once, each with keys of its own. Fixed sizes and no loop, so that a CUDA graph
    can hold it: room that the copies of openings do not need is left over at the end, where no segment looks.
    """

    rows: torch.Tensor
    """Which token stands where."""
    boundaries: torch.Tensor
    """As of `Segments`."""
    longest: int
    own: torch.Tensor
    """Where each token stands in its own segment."""
    copies: torch.Tensor
    """Where the tokens of the opening stand that a segment looks at: segments x tokens of the longest opening."""
    beyond: torch.Tensor
    """Which of these its opening does not have."""
    members: torch.Tensor
    """Which segments are in which group: groups x segments."""
    opening: torch.Tensor
    """Which token each of an opening is: groups x tokens of the longest opening. Beyond an opening's end it is any."""

    @classmethod
    def of(cls, segments: Segments) -> KeyIndex:
        openings, edges = segments.openings, segments.boundaries.long()
        seen, last = openings.seen, segments.tokens - 1
        copied = seen.cumsum(0)
        boundaries = torch.cat((edges[:1], edges[1:] + copied))
        own = torch.arange(segments.tokens, device=edges.device) + copied.index_select(
            0, segments.number_of_each_token()
        )
        number = _between(boundaries, segments.tokens + segments.copies)
        place = torch.arange(len(number), device=edges.device) - boundaries.index_select(0, number)
        of_opening, in_own = openings.begins.index_select(0, openings.group), edges[:-1] - seen
        begin = torch.where(
            place < seen.index_select(0, number), of_opening.index_select(0, number), in_own.index_select(0, number)
        )
        within = torch.arange(segments.opening, device=edges.device)
        beyond = within >= seen[:, None]
        return cls(
            rows=(begin + place).clamp(max=last),
            boundaries=boundaries.to(torch.int32),
            longest=segments.longest + segments.opening,
            own=own,
            copies=(boundaries[:-1, None] + within).masked_fill(beyond, 0),
            beyond=beyond,
            members=openings.group == torch.arange(len(openings.begins), device=edges.device)[:, None],
            opening=(openings.begins[:, None] + within).clamp(max=last),
        )


class Kernel(Protocol):
    """Softmax attention and its gradient. Queries are tokens x heads x size, keys and values may have fewer heads."""

    def forward(self, qkv: QKV, segments: Segments, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Each token attends to its group's opening and to its own segment up to itself.

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
