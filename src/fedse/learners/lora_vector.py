"""All LoRA tensors of a network as one float32 vector, so that clipping and AdamW are a few operations, not thousands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class LoraVector:
    """Keeps its place in memory for as long as it lives; the network gets the values when they are put back."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.values = torch.nn.Parameter(self._joined(self.parameters))
        self.values.grad = torch.zeros_like(self.values)
        self._pieces = [
            piece.view_as(parameter)
            for piece, parameter in zip(
                torch.split(self.values.detach(), [parameter.numel() for parameter in self.parameters]),
                self.parameters,
                strict=True,
            )
        ]

    def another(self) -> LoraVector:
        """With values of its own, for the same tensors of the same network."""
        return type(self)(self._network)

    @property
    def gradient(self) -> torch.Tensor:
        assert self.values.grad is not None
        return self.values.grad

    @torch.no_grad()
    def take(self) -> None:
        """Become what the network holds."""
        torch._foreach_copy_(self._pieces, self.parameters)

    @torch.no_grad()
    def put_back(self) -> None:
        """Make the network hold this."""
        torch._foreach_copy_(self.parameters, self._pieces)

    @torch.no_grad()
    def add_gradients(self, gradients: Sequence[torch.Tensor]) -> None:
        """Of the network's parameters, in their order."""
        self.gradient.add_(self._joined(gradients))

    @staticmethod
    def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([tensor.detach().flatten().float() for tensor in tensors])
