"""The trained LoRA tensors of a network as one float32 vector: clipping and AdamW are a few operations, not thousands."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from fedse.networks.swap import lora_parameters
from fedse.types import Adapter


class LoraVector:
    """Keeps its place in memory for as long as it lives. Frozen LoRA tensors lie in a second vector, `fixed`."""

    def __init__(self, network: Any) -> None:
        self._network = network
        self._names, self.parameters = self._found(trained=True)
        self._frozen_names, self.frozen = self._found(trained=False)
        self._take_place()

    def _take_place(self) -> None:
        self.values = torch.nn.Parameter(self._joined(self.parameters))
        self.values.grad = torch.zeros_like(self.values)
        self._pieces = self._split(self.values.detach())
        # The zero at the end is for whoever arranges factors in a matrix with gaps.
        self.fixed = self._joined([*self.frozen, self.values.new_zeros(1)])

    def another(self) -> LoraVector:
        """With values of its own, for the same tensors of the same network."""
        twin = copy(self)
        twin._take_place()
        return twin

    @property
    def gradient(self) -> torch.Tensor:
        assert self.values.grad is not None
        return self.values.grad

    @property
    def outdated(self) -> bool:
        """Whether the network has other tensors by now, as it has after an adapter with further pairs came and went."""
        _, parameters = self._found(trained=True)
        return [id(parameter) for parameter in parameters] != [id(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def hold(self, adapter: Adapter) -> None:
        """Become this adapter, without the network."""
        for place, names in ((self.values, self._names), (self.fixed[:-1], self._frozen_names)):
            if names:
                place.copy_(torch.from_numpy(np.concatenate([adapter.tensors[name].ravel() for name in names])))

    @torch.no_grad()
    def clear(self) -> None:
        """Hold nothing: numbers that are not finite would be felt beside other adapters."""
        self.values.zero_()
        self.fixed.zero_()

    def adapter(self, like: Adapter) -> Adapter:
        """What is held, with the configuration and the frozen tensors of `like`."""
        pieces = self._split(self.values.detach().cpu())
        trained = {name: piece.numpy().copy() for name, piece in zip(self._names, pieces, strict=True)}
        return Adapter({**like.tensors, **trained}, like.config)

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

    def _found(self, trained: bool) -> tuple[list[str], list[torch.Tensor]]:
        found = {name: item for name, item in lora_parameters(self._network).items() if item.requires_grad == trained}
        return list(found), list(found.values())

    def _split(self, values: torch.Tensor) -> list[torch.Tensor]:
        pieces = torch.split(values, [parameter.numel() for parameter in self.parameters])
        return [piece.view_as(parameter) for piece, parameter in zip(pieces, self.parameters, strict=True)]

    def _joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        # A network may lie on several devices; the vector lies on one.
        home = self.parameters[0].device
        return torch.cat([tensor.detach().flatten().to(home, torch.float32) for tensor in tensors])
