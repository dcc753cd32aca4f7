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

from fedse.networks.llama import Llama, LlamaLayer, is_plain_llama
from fedse.networks.training.attention_kernels import CudaFlash, kernel_for
from fedse.networks.training.cross_entropy import (
    Soft,
    linear_cross_entropy,
    linear_entropies,
    linear_likely_tokens,
    linear_log_probabilities,
)
from fedse.networks.training.factor_layout import FactorLayout, Matrix
from fedse.networks.training.layer_operations import LayerOperations, PlainOperations, Rotary
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.low_rank import Adapted, Pair, Whose, adapted_linears
from fedse.networks.training.packed_attention import QKV, Segments, packed_attention
from fedse.networks.training.row_owners import RowOwners
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
    owners: tuple[RowOwners, RowOwners] | None = None
    """The same in a pack of several adapters."""


def owners_of(segments: Segments, predicting: torch.Tensor, adapters: int) -> tuple[RowOwners, RowOwners] | None:
    """Of tokens and of targets, where there are several adapters."""
    if adapters == 1:
        return None
    owners = RowOwners.of(segments)
    return owners, owners.at(predicting)


_Layer = LlamaLayer[tuple[Matrix, ...]]
Factors = Sequence[torch.Tensor]


class PackedLlama:
    """Reads the adapter from `vector` and adds to its gradient; of the network only frozen tensors are used.

    With several vectors, packs hold a group of conversations for each (`token_packing.end_to_end`).
    """

    def __init__(self, network: Any, vector: LoraVector, checkpointing: bool = False) -> None:
        self._llama = llama = Llama(network)
        self.vectors: Sequence[LoraVector] = [vector]
        self._checkpointing = checkpointing
        self.device, self.dtype = llama.device, llama.dtype
        self._kernel, self._operations = kernel_for(self.device, self.dtype), _operations_for(self.device)
        # A CUDA graph holds a pass without a loop that depends on the pack. What it saves, the time to launch kernels, is
        # nothing to a large network, whose packs would be padded to the sizes of graphs.
        self.worth_recording = isinstance(self._kernel, CudaFlash) and not is_large(network)
        layout = FactorLayout(vector)
        self.rank = rank = max(sum(len(pair.down) for pair in linear.pairs) for linear in llama.linears())
        # Joining makes a second copy of all matrices.
        make = layout.joined if rank <= _HIGHEST_RANK and not is_large(network) else layout.apart
        self._layers = [layer.each(make) for layer in llama.layers]
        self._order = layout.done(self.device)
        self._normed = True

    def reading(self, *vectors: LoraVector) -> PackedLlama:
        """The same frozen network, which read one vector, with the adapter of another, or with those of several."""
        other = copy(self)
        other.vectors = vectors
        if len(vectors) > 1:
            other._order = self._order.of_several(len(vectors))
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
        """The pack's loss, or that of each adapter; its gradient is added to the vector's."""
        with during("loss"):
            loss = self.loss(pack)
        with during("backward"):
            values = [vector.values for vector in self.vectors]
            gradients = torch.autograd.grad(loss, values, torch.ones_like(loss))
            torch._foreach_add_([vector.gradient for vector in self.vectors], gradients)
        return loss.detach()

    def unit_gradients(self, pack: PackTensors) -> torch.Tensor:
        """Of each unit's part of the loss by itself, units x values. The vector's gradient stays as it is."""
        assert pack.units is not None
        copies = self.vectors[0].values.detach().expand(pack.units[0].units, -1).requires_grad_()
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
        owners = None if pack.owners is None else pack.owners[1]
        given = (hidden, head.weight, head.bias, pack.targets, pack.importance, pack.soft)
        return linear_cross_entropy(*given, owners=owners)

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
        values = _end_to_end([vector.values for vector in self.vectors])[None] if copies is None else copies
        factors = self._order.factors(values, _end_to_end([vector.fixed for vector in self.vectors]).to(self.dtype))
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
        whose, predicting = pack.units or pack.owners or (None, None)

        def projected(inputs: torch.Tensor, *matrices: Matrix) -> torch.Tensor:
            return _projected(inputs, matrices, factors, whose)

        operations, epsilon = self._operations, self._llama.epsilon
        hidden, normed = operations.add_norm(hidden, added, layer.before_attention, epsilon)
        qkv = self._qkv(projected(normed, *layer.query_key_value), layer, rotary)
        seen = packed_attention(qkv, pack.segments, self._llama.scale, self._kernel).flatten(1)
        if last:
            hidden, seen = hidden.index_select(0, pack.predicting), seen.index_select(0, pack.predicting)
            whose = predicting
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


def _end_to_end(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(tensors)) if len(tensors) > 1 else tensors[0]


def _projected(
    inputs: torch.Tensor, matrices: tuple[Matrix, ...], factors: Factors, whose: Whose | None
) -> torch.Tensor:
    def pair(matrix: Matrix) -> Pair | None:
        return None if matrix.factors is None else (factors[matrix.factors], factors[matrix.factors + 1])

    layers = [Adapted(matrix.weight, matrix.bias, pair(matrix)) for matrix in matrices]
    scale = next((one.scale for one in matrices if one.factors is not None), 0.0)
    return adapted_linears(inputs, layers, scale, whose)
