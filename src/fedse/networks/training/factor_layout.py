"""Where the entries of all LoRA factors stand: in the vector in which they are trained, and in the matrices of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedse.networks.llama import Linears, joined
from fedse.networks.training.lora_vector import LoraVector


@dataclass(frozen=True)
class Matrix:
    """Linear layers of the same input as one, and where its factors stand among all factors."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    factors: int | None
    """Index of A; B comes after it. None: no adapter."""
    scale: float


class _Arrange(torch.autograd.Function):
    """Trained and fixed values in another order, with zeros between; each trained value stands in one place.

    Trained values come as copies x values. Copies are alike and take the room of one; their gradients are not.
    """

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, fixed: torch.Tensor, order: torch.Tensor, places: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(places)
        return torch.cat((values[0].to(fixed.dtype), fixed)).index_select(0, order).expand(len(values), -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        return gradients[0].index_select(1, places).float(), None, None, None


class FactorLayout:
    """Collects where each entry of each joined factor stands in the vector, or among its fixed values after it.

    The A's of joined layers, and of several pairs in one layer, stand one below the other; the B's of one layer side by
    side, and those of joined layers along the diagonal of one matrix.
    """

    def __init__(self, vector: LoraVector) -> None:
        self._begin = {}
        self._size = 0
        for parameter in (*vector.parameters, *vector.frozen):
            self._begin[id(parameter)] = self._size
            self._size += parameter.numel()
        self._trained = vector.values.numel()
        self._entries: list[torch.Tensor] = []

    def joined(self, linears: Linears) -> tuple[Matrix, ...]:
        """One matrix of several linear layers with the same input."""
        weight = joined([linear.weight for linear in linears]).detach()
        biases = [linear.bias for linear in linears if linear.bias is not None]
        bias = joined(biases).detach() if biases else None
        pairs = [pair for linear in linears for pair in linear.pairs]
        if not pairs:
            return (Matrix(weight, bias, None, 0.0),)
        downs = [self._places(pair.down) for pair in pairs]
        ups = torch.full((len(weight), sum(map(len, downs))), self._size)
        row = column = 0
        for linear in linears:
            for pair in linear.pairs:
                up = self._places(pair.up)
                ups[row : row + up.shape[0], column : column + up.shape[1]] = up
                column += up.shape[1]
            row += len(linear.weight)
        self._entries += [torch.cat(downs), ups]
        return (Matrix(weight, bias, len(self._entries) - 2, pairs[0].scale),)

    def apart(self, linears: Linears) -> tuple[Matrix, ...]:
        """A matrix of each."""
        return tuple(matrix for linear in linears for matrix in self.joined((linear,)))

    def _places(self, parameter: torch.Tensor) -> torch.Tensor:
        begin = self._begin[id(parameter)]
        return torch.arange(begin, begin + parameter.numel()).view(parameter.shape)

    def done(self, device: torch.device) -> FactorOrder:
        order = torch.cat([entry.flatten() for entry in self._entries])
        shapes = [(entry.shape[0], entry.shape[1]) for entry in self._entries]
        # The zero after the fixed values fills the gaps.
        return FactorOrder.of(order.to(device), shapes, self._trained, self._size + 1 - self._trained)


@dataclass(frozen=True)
class FactorOrder:
    """How the factors of a pass, A's and B's in turn, are made of trained and fixed values."""

    order: torch.Tensor
    """Which value stands where."""
    places: torch.Tensor
    """Where each trained one stands."""
    shapes: Sequence[tuple[int, int]]
    trained: int
    fixed: int

    @classmethod
    def of(cls, order: torch.Tensor, shapes: Sequence[tuple[int, int]], trained: int, fixed: int) -> FactorOrder:
        places = order.new_empty(trained + fixed)
        places[order] = torch.arange(len(order), device=order.device)
        return cls(order, places[:trained].clone(), shapes, trained, fixed)

    def factors(self, values: torch.Tensor, fixed: torch.Tensor) -> list[torch.Tensor]:
        """Each as copies x rows x columns, of trained values that come as copies x values. Copies are alike."""
        arranged: torch.Tensor = _Arrange.apply(values, fixed, self.order, self.places)  # type: ignore[no-untyped-call]
        pieces = torch.split(arranged, [rows * columns for rows, columns in self.shapes], dim=1)
        return [piece.view(-1, *shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def of_several(self, adapters: int) -> FactorOrder:
        """As if they were one adapter: their A's one below the other, their B's side by side. Trained values come one
        adapter after another, and fixed ones too."""
        trained, fixed = adapters * self.trained, adapters * self.fixed

        def own(entries: torch.Tensor, adapter: int) -> torch.Tensor:
            of_fixed = entries + (trained - self.trained + adapter * self.fixed)
            return torch.where(entries < self.trained, entries + adapter * self.trained, of_fixed)

        pieces, shapes = [], []
        single = torch.split(self.order, [rows * columns for rows, columns in self.shapes])
        for number, (piece, (rows, columns)) in enumerate(zip(single, self.shapes, strict=True)):
            along = number % 2  # B comes after A.
            copies = [own(piece.view(rows, columns), adapter) for adapter in range(adapters)]
            pieces.append(torch.cat(copies, dim=along).flatten())
            shapes.append((rows, columns * adapters) if along else (rows * adapters, columns))
        return FactorOrder.of(torch.cat(pieces), shapes, trained, fixed)
