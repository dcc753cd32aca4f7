"""Loss and gradient of a pack for Llama-like networks with LoRA: no padding, few and large operations, no full logits.

The same arithmetic as the network's own. Query, key and value are one matrix, gate and up are one, low-rank factors of one
matrix are multiplied together, and what no loss depends on is not computed: logits of the world's tokens, and the last
layer's feed-forward for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from fedse.networks.llama import Linears, Llama, LlamaLayer, is_plain_llama, joined
from fedse.networks.training.attention_kernels import CudaFlash, kernel_for
from fedse.networks.training.cross_entropy import (
    Soft,
    linear_cross_entropy,
    linear_entropies,
    linear_likely_tokens,
    linear_log_probabilities,
)
from fedse.networks.training.layer_operations import LayerOperations, PlainOperations, Rotary
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.low_rank import Adapted, Pair, adapted_linears
from fedse.networks.training.packed_attention import QKV, Segments, packed_attention
from fedse.networks.training.unit_rows import UnitRows
from fedse.stopwatch import during

_STEADY_ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings that do not depend on how long the longest conversation is."""
_LARGE = 4 * 2**30
"""Bytes of a network whose batches fill a GPU."""
_HIGHEST_RANK = 64
"""Of a module, to be joined with others: the joined B's are mostly zeros."""


@dataclass(frozen=True)
class PackTensors:
    """A pack on the device."""

    ids: torch.Tensor
    positions: torch.Tensor
    predicting: torch.Tensor
    targets: torch.Tensor
    importance: torch.Tensor
    """Factor of each target's loss, float32."""
    segments: Segments
    soft: Soft | None = None
    """Further targets in the same places, if there are any."""
    units: tuple[UnitRows, UnitRows] | None = None
    """Whose the tokens and whose the targets are, if the gradient of each unit is wanted by itself."""


@dataclass(frozen=True)
class _Matrix:
    """Linear layers of the same input as one, and where its factors stand among all factors."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    factors: int | None
    """Index of A; B comes after it. None: no adapter."""
    scale: float


_Layer = LlamaLayer[tuple[_Matrix, ...]]
Factors = Sequence[torch.Tensor]


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


class PackedLlama:
    """Reads the adapter from `vector` and adds to its gradient; of the network only frozen tensors are used."""

    def __init__(self, network: Any, vector: LoraVector, checkpointing: bool = False) -> None:
        self._llama = llama = Llama(network)
        self._vector = vector
        self._checkpointing = checkpointing
        self.device, self.dtype = llama.device, llama.dtype
        self._kernel, self._operations = kernel_for(self.device, self.dtype), _operations_for(self.device)
        # A CUDA graph holds a pass without a loop that depends on the pack. What it saves, the time to launch kernels, is
        # nothing to a large network, whose packs would be padded to the sizes of graphs.
        self.worth_recording = isinstance(self._kernel, CudaFlash) and not is_large(network)
        layout = _FactorLayout(vector)
        rank = max(sum(len(pair.down) for pair in linear.pairs) for linear in llama.linears())
        # Joining makes a second copy of all matrices.
        make = layout.joined if rank <= _HIGHEST_RANK and not is_large(network) else layout.apart
        self._layers = [layer.each(make) for layer in llama.layers]
        self._order, self._places, self._shapes = layout.done(self.device)
        self._normed = True

    def reading(self, vector: LoraVector) -> PackedLlama:
        """The same frozen network with the adapter of another vector."""
        other = copy(self)
        other._vector = vector
        return other

    def up_to(self, layer: int, normed: bool) -> PackedLlama:
        """The same adapter, and the network without the layers after this one: its output layer reads what the residual
        stream holds there, with the norm that stands before it or without. No gradient reaches what was left out."""
        if not 1 <= layer < len(self._layers):
            raise ValueError(f"there is no layer {layer} below the last one of {len(self._layers)}")
        other = copy(self)
        other._layers, other._normed = self._layers[:layer], normed
        return other

    @staticmethod
    def suits(network: Any) -> bool:
        """Whether this class computes what the network does: one device, one precision, known in every part."""
        if not is_plain_llama(network) or network.config.attention_dropout:
            return False
        config, llama = network.config, Llama(network)
        if set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}:
            return False
        if config.model_type == "mistral" and config.sliding_window is not None:
            return False
        if llama.rotary_embedding.rope_type not in _STEADY_ROTATIONS:
            return False
        plain = [parameter for name, parameter in network.named_parameters() if ".lora_" not in name]
        if len({(parameter.dtype, parameter.device) for parameter in plain}) != 1:
            return False
        linears = list(llama.linears())
        return (
            not llama.head.adapted
            and all(linear.all_active for linear in linears)
            and len({pair.scale for linear in linears for pair in linear.pairs}) == 1
        )

    def add_gradient(self, pack: PackTensors) -> torch.Tensor:
        """The pack's loss; its gradient is added to the vector's."""
        with during("loss"):
            loss = self.loss(pack)
        with during("backward"):
            (gradient,) = torch.autograd.grad(loss, self._vector.values)
            self._vector.gradient.add_(gradient)
        return loss.detach()

    def unit_gradients(self, pack: PackTensors) -> torch.Tensor:
        """Of each unit's part of the loss by itself, units x values. The vector's gradient stays as it is."""
        assert pack.units is not None
        copies = self._vector.values.detach().expand(pack.units[0].units, -1).requires_grad_()
        with during("loss"):
            loss = self.loss(pack, copies)
        with during("backward"):
            (gradients,) = torch.autograd.grad(loss, copies)
        return gradients

    @torch.no_grad()
    def log_probabilities(self, pack: PackTensors) -> torch.Tensor:
        """Of each target."""
        hidden, head = self._hidden(pack), self._llama.head
        return linear_log_probabilities(hidden, head.weight, head.bias, pack.targets)

    @torch.no_grad()
    def likely_tokens(self, pack: PackTensors, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        """In the place of each target, so many tokens and their log-probabilities."""
        head = self._llama.head
        return linear_likely_tokens(self._hidden(pack), head.weight, head.bias, most)

    @torch.no_grad()
    def layer_entropies(self, pack: PackTensors, normed: bool) -> torch.Tensor:
        """The entropy of the distribution that each layer has in the place of each target: layers x targets. `normed` is as
        for `up_to`; the last layer has what the network says."""
        head, last = self._llama.head, len(self._layers) - 1
        found = []
        for number, (hidden, added) in enumerate(self._layer_by_layer(pack)):
            if number < last:
                hidden, added = (item.index_select(0, pack.predicting) for item in (hidden, added))
            read = self._read(hidden, added, normed or number == last)
            found.append(linear_entropies(read, head.weight, head.bias))
        return torch.stack(found)

    def loss(self, pack: PackTensors, copies: torch.Tensor | None = None) -> torch.Tensor:
        hidden, head = self._hidden(pack, copies), self._llama.head
        return linear_cross_entropy(hidden, head.weight, head.bias, pack.targets, pack.importance, pack.soft)

    def _hidden(self, pack: PackTensors, copies: torch.Tensor | None = None) -> torch.Tensor:
        """What the output layer reads, at the places that predict a target."""
        hidden, added = deque(self._layer_by_layer(pack, copies), maxlen=1).pop()
        return self._read(hidden, added, self._normed)

    def _read(self, hidden: torch.Tensor, added: torch.Tensor, normed: bool) -> torch.Tensor:
        if not normed:
            return hidden + added
        return self._operations.add_norm(hidden, added, self._llama.last_norm, self._llama.epsilon)[1]

    def _layer_by_layer(
        self, pack: PackTensors, copies: torch.Tensor | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """After each, the sum of what was before it and what it adds; after the last only where a target is predicted.
        `copies` are the vector's values once for each unit of the pack."""
        values, fixed = self._vector.values[None] if copies is None else copies, self._vector.fixed.to(self.dtype)
        arranged: torch.Tensor = _Arrange.apply(values, fixed, self._order, self._places)  # type: ignore[no-untyped-call]
        sizes = [rows * columns for rows, columns in self._shapes]
        pieces = torch.split(arranged, sizes, dim=1)
        factors = [piece.view(-1, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        hidden = functional.embedding(pack.ids, self._llama.embedding)
        cosine, sine = self._llama.rotary(hidden[None], pack.positions[None])
        rotary = (cosine[0], sine[0])
        added = None
        for number, layer in enumerate(self._layers):
            step = partial(self._pass_layer, layer, factors, rotary, pack, number == len(self._layers) - 1)
            if self._checkpointing:
                hidden, added = checkpoint(step, hidden, added, use_reentrant=False, preserve_rng_state=False)
            else:
                hidden, added = step(hidden, added)
            yield hidden, added

    def _pass_layer(
        self,
        layer: _Layer,
        factors: Factors,
        rotary: Rotary,
        pack: PackTensors,
        last: bool,
        hidden: torch.Tensor,
        added: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of all layers before this one and what this one adds: its addition is part of the next norm."""
        units, predicting = pack.units or (None, None)

        def projected(inputs: torch.Tensor, *matrices: _Matrix) -> torch.Tensor:
            return _projected(inputs, matrices, factors, units)

        operations, epsilon = self._operations, self._llama.epsilon
        hidden, normed = operations.add_norm(hidden, added, layer.before_attention, epsilon)
        qkv = self._qkv(projected(normed, *layer.query_key_value), layer, rotary)
        seen = packed_attention(qkv, pack.segments, self._llama.scale, self._kernel).flatten(1)
        if last:
            hidden, seen = hidden.index_select(0, pack.predicting), seen.index_select(0, pack.predicting)
            units = predicting
        hidden, normed = operations.add_norm(hidden, projected(seen, *layer.out), layer.before_feed_forward, epsilon)
        return hidden, projected(operations.gate(projected(normed, *layer.gate_up)), *layer.down)

    def _qkv(self, mixed: torch.Tensor, layer: _Layer, rotary: Rotary) -> QKV:
        llama = self._llama
        mixed = mixed.view(len(mixed), -1, llama.head_size)
        queries, keys, values = torch.split(mixed, [llama.heads, llama.key_heads, llama.key_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = self._norm(queries, layer.query_norm), self._norm(keys, layer.key_norm)
        return self._operations.rotate(queries, rotary), self._operations.rotate(keys, rotary), values

    def _norm(self, inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(inputs, weight.shape, weight, self._llama.epsilon)


def is_large(network: Any) -> bool:
    """Whether one adapter's batch fills a GPU, so that few and large operations gain little over many."""
    return bool(sum(parameter.nbytes for parameter in network.parameters()) > _LARGE)


def _operations_for(device: torch.device) -> LayerOperations:
    if device.type == "cuda" and find_spec("triton") is not None:
        from fedse.networks.training.triton_operations import TritonOperations

        return TritonOperations()
    return PlainOperations()


def _projected(
    inputs: torch.Tensor, matrices: tuple[_Matrix, ...], factors: Factors, units: UnitRows | None
) -> torch.Tensor:
    def pair(matrix: _Matrix) -> Pair | None:
        return None if matrix.factors is None else (factors[matrix.factors], factors[matrix.factors + 1])

    layers = [Adapted(matrix.weight, matrix.bias, pair(matrix)) for matrix in matrices]
    scale = next((one.scale for one in matrices if one.factors is not None), 0.0)
    return adapted_linears(inputs, layers, scale, units)


class _FactorLayout:
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

    def joined(self, linears: Linears) -> tuple[_Matrix, ...]:
        """One matrix of several linear layers with the same input."""
        weight = joined([linear.weight for linear in linears]).detach()
        biases = [linear.bias for linear in linears if linear.bias is not None]
        bias = joined(biases).detach() if biases else None
        pairs = [pair for linear in linears for pair in linear.pairs]
        if not pairs:
            return (_Matrix(weight, bias, None, 0.0),)
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
        return (_Matrix(weight, bias, len(self._entries) - 2, pairs[0].scale),)

    def apart(self, linears: Linears) -> tuple[_Matrix, ...]:
        """A matrix of each."""
        return tuple(matrix for linear in linears for matrix in self.joined((linear,)))

    def _places(self, parameter: torch.Tensor) -> torch.Tensor:
        begin = self._begin[id(parameter)]
        return torch.arange(begin, begin + parameter.numel()).view(parameter.shape)

    def done(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, list[tuple[int, int]]]:
        """Which value stands where (the last is zero), where each trained one stands, and the factors' shapes."""
        order = torch.cat([entry.flatten() for entry in self._entries])
        places = torch.empty(self._size + 1, dtype=torch.long)
        places[order] = torch.arange(len(order))
        shapes = [(entry.shape[0], entry.shape[1]) for entry in self._entries]
        return order.to(device), places[: self._trained].to(device), shapes
