"""A frozen linear layer with a low-rank adapter, as few and as large matrix products as possible."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

Pair = tuple[torch.Tensor, torch.Tensor]
"""LoRA's A and B."""


class _Adapted(torch.autograd.Function):
    """inputs (weight + scale B A)^T + bias, with gradients for inputs, A and B. Keeps nothing wide but its inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        ctx.scale = scale
        # In bfloat16 a merged matrix would round small adapters away.
        ctx.merged = weight.dtype == torch.float32
        if ctx.merged:
            weight = torch.addmm(weight, up, down, alpha=scale)
            outputs = functional.linear(inputs, weight, bias)
            ctx.save_for_backward(inputs, weight, down, up)
        else:
            narrow = inputs @ down.T
            outputs = functional.linear(inputs, weight, bias).addmm_(narrow, up.T, alpha=scale)
            ctx.save_for_backward(inputs, weight, down, up, narrow)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        inputs, weight, down, up, *kept = ctx.saved_tensors
        narrow = kept[0] if kept else inputs @ down.T
        back = (gradient @ up).mul_(ctx.scale)
        to_inputs = None
        if ctx.needs_input_grad[0]:
            to_inputs = gradient @ weight
            if not ctx.merged:
                to_inputs.addmm_(back, down)
        return to_inputs, None, None, back.T @ inputs, (gradient.T @ narrow).mul_(ctx.scale), None


def adapted_linear(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, pair: Pair | None, scale: float
) -> torch.Tensor:
    """Outputs for rows of inputs, with or without an adapter."""
    if pair is None:
        return functional.linear(inputs, weight, bias)
    outputs: torch.Tensor = _Adapted.apply(inputs, weight, bias, *pair, scale)  # type: ignore[no-untyped-call]
    return outputs
