"""Frozen linear layers with low-rank adapters, as few and as large matrix products as possible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from fedse.networks.training.row_owners import RowOwners
from fedse.networks.training.unit_rows import UnitRows

Pair = tuple[torch.Tensor, torch.Tensor]
"""LoRA's A and B, as copies x rows x columns. All copies are alike; each unit of the rows has one, for its own gradient."""
Whose = UnitRows | RowOwners
"""Rows of units that share an adapter, or rows of several adapters, whose A's stand one below the other and whose B's
side by side."""


class Adapted(NamedTuple):
    """A frozen linear layer, and the adapter on it if there is one."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    pair: Pair | None


class _Part(NamedTuple):
    """What the gradients of one layer are made of."""

    weight: torch.Tensor
    down: torch.Tensor | None
    up: torch.Tensor | None
    narrow: torch.Tensor | None
    """Inputs times A, where they were computed; None where the adapter is in the weight."""


class _SideBySide(torch.autograd.Function):
    """inputs (weight + scale B A)^T + bias of several layers with the same inputs, in columns side by side.

    Gradients for inputs, A and B. Keeps nothing wide but its inputs, and copies no outputs together.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        scale: float,
        widths: Sequence[int],
        whose: Whose | None,
        *given: torch.Tensor | None,
    ) -> torch.Tensor:
        whole = inputs.new_empty(len(inputs), sum(widths)) if len(widths) > 1 else None
        kept: list[torch.Tensor | None] = []
        for at, (begin, end) in zip(range(0, len(given), 4), _edges(widths), strict=True):
            weight, bias, down, up = given[at : at + 4]
            assert weight is not None
            narrow = None
            if down is not None and up is not None:
                down, up = down[0], up[0]
                if isinstance(whose, RowOwners):
                    narrow = whose.keep_own(inputs @ down.T)
                # In bfloat16 a merged matrix would round small adapters away.
                elif weight.dtype == torch.float32:
                    weight = torch.addmm(weight, up, down, alpha=scale)
                else:
                    narrow = inputs @ down.T
            outputs = _linear(inputs, weight, bias, None if whole is None else whole[:, begin:end])
            if narrow is not None and up is not None:
                outputs.addmm_(narrow, up.T, alpha=scale)
            kept += [weight, down, up, narrow]
        ctx.scale, ctx.widths, ctx.whose = scale, widths, whose
        # What no adapter sees is not kept.
        ctx.save_for_backward(inputs if any(item is not None for item in kept[1::4]) else None, *kept)
        return outputs if whole is None else whole

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, *kept = ctx.saved_tensors
        parts = [_Part(*kept[at : at + 4]) for at in range(0, len(kept), 4)]
        to_inputs: torch.Tensor | None = None
        to_pairs: list[torch.Tensor | None] = []
        for part, (begin, end) in zip(parts, _edges(ctx.widths), strict=True):
            gradient = gradients[0][:, begin:end]
            back = None if part.up is None else (gradient @ part.up).mul_(ctx.scale)
            if back is not None and isinstance(ctx.whose, RowOwners):
                ctx.whose.keep_own(back)
            if ctx.needs_input_grad[0]:
                to_inputs = gradient @ part.weight if to_inputs is None else to_inputs.addmm_(gradient, part.weight)
                if back is not None and part.down is not None and part.narrow is not None:
                    to_inputs.addmm_(back, part.down)
            to_pairs += [None, None, *_to_pair(inputs, gradient, part, back, ctx.scale, ctx.whose)]
        return to_inputs, None, None, None, *to_pairs


def _linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None
) -> torch.Tensor:
    if out is None:
        return functional.linear(inputs, weight, bias)
    return torch.mm(inputs, weight.T, out=out) if bias is None else torch.addmm(bias, inputs, weight.T, out=out)


def _to_pair(
    inputs: torch.Tensor,
    gradient: torch.Tensor,
    part: _Part,
    back: torch.Tensor | None,
    scale: float,
    whose: Whose | None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if back is None or part.down is None:
        return None, None
    narrow = inputs @ part.down.T if part.narrow is None else part.narrow
    if isinstance(whose, UnitRows):
        return whose.products(back, inputs), whose.products(narrow, gradient).mul_(scale).mT
    return (back.T @ inputs)[None], (gradient.T @ narrow).mul_(scale)[None]


def _edges(widths: Sequence[int]) -> list[tuple[int, int]]:
    """Where the columns of each layer begin and end."""
    return list(pairwise(accumulate(widths, initial=0)))


def adapted_linears(
    inputs: torch.Tensor, layers: Sequence[Adapted], scale: float, whose: Whose | None = None
) -> torch.Tensor:
    """Outputs for rows of inputs, those of one layer beside those of the next. With units, each pair has a copy for each,
    whose gradient is that of the unit's rows alone; with owners, each row goes through the pairs of its own adapter."""
    if len(layers) == 1 and layers[0].pair is None:
        return functional.linear(inputs, layers[0].weight, layers[0].bias)
    given = chain.from_iterable((weight, bias, *(pair or (None, None))) for weight, bias, pair in layers)
    widths = [len(layer.weight) for layer in layers]
    outputs: torch.Tensor = _SideBySide.apply(inputs, scale, widths, whose, *given)  # type: ignore[no-untyped-call]
    return outputs
