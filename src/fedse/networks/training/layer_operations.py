"""What a Llama layer computes between its matrix products: plain, and in `triton_operations` with less traffic to memory."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn import functional

Rotary = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of each token's position, tokens x head size; the sine of the first half is negated."""


class LayerOperations(Protocol):
    def add_norm(
        self, hidden: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum, and its root-mean-square norm times the frozen weight."""
        ...

    def rotate(self, vectors: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Tokens x heads x size, each rotate by its token's position."""
        ...

    def gate(self, inputs: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of inputs whose first half is the gate."""
        ...


class PlainOperations:
    def add_norm(
        self, hidden: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = hidden if added is None else hidden + added
        return total, functional.rms_norm(total, weight.shape, weight, epsilon)

    def rotate(self, vectors: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        cosine, sine = (item[:, None] for item in rotary)
        return torch.addcmul(vectors * cosine, vectors.roll(vectors.shape[-1] // 2, -1), sine)

    def gate(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = _Gated.apply(inputs)  # type: ignore[no-untyped-call]
        return outputs


class _Gated(torch.autograd.Function):
    """Keeps the inputs only, and touches memory less often than a gradient made of single operations."""

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
