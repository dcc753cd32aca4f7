"""The gated unit of a Llama, with a gradient that touches memory less often than one made of single operations."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


class _Gated(torch.autograd.Function):
    """silu(gate) * up of inputs whose first half is the gate. Keeps the inputs only."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inputs)
        gate, up = inputs.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = gradients
        (inputs,) = ctx.saved_tensors
        gate, up = inputs.chunk(2, dim=-1)
        to_inputs = torch.empty_like(inputs)
        to_gate, to_up = to_inputs.chunk(2, dim=-1)
        torch.mul(functional.silu(gate), gradient, out=to_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=to_gate)
        return to_inputs


def gated(inputs: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        gate, up = inputs.chunk(2, dim=-1)
        return functional.silu(gate) * up
    outputs: torch.Tensor = _Gated.apply(inputs)  # type: ignore[no-untyped-call]
    return outputs
