"""A Llama-like network as few kernels, with adapters beside the frozen weights, for recording as a CUDA graph.

An adapter is not merged: where the base is in bfloat16, adding a small update to a weight rounds it away. Its two factors
lie in tensors that stay where they are, so that a recorded graph sees the next adapter without being recorded again.

There may be several at a time, one block of ranks after another: all inner values are computed, and of each row those of its
own adapter are used. A rank is narrow, so that this costs little.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from fedse.networks.decoding.paged_cache import PagedCache
from fedse.networks.decoding.product import LowRank, Product
from fedse.networks.llama import Linears, Llama, is_plain_llama

_ROTATIONS = ("default", "linear", "llama3")
_FEW_RANKS = 32
"""Of an adapter on a layer: so many are added where the layer's product is read, more by a product of their own."""


class _Adapted:
    """Linear layers of the same input as one, with their adapters."""

    def __init__(self, linears: Linears, adapters: int) -> None:
        self._linears = linears
        weights = [linear.weight for linear in linears]
        biases = [linear.bias for linear in linears if linear.bias is not None]
        self._ranks = _ranks(linears)
        self._block = sum(self._ranks)
        self._outputs, rank = sum(len(weight) for weight in weights), adapters * self._block
        self._bias = torch.cat([*biases, biases[0].new_zeros(rank)]) if biases else None
        self._weight = weights[0]
        self._up: torch.Tensor | None = None
        if rank or len(weights) > 1:
            # One product gives the layers' outputs and, behind them, the adapters' inner values.
            self._weight = torch.cat([*weights, weights[0].new_zeros(rank, weights[0].shape[1])])
        if rank:
            self._up = self._weight.new_zeros(rank, self._outputs)

    def outgrown(self) -> bool:
        """Whether the layers have other adapters now than when this was made."""
        return self._ranks != _ranks(self._linears)

    def load(self, adapter: int) -> None:
        """Copy what the network holds now, as the adapter with this number: each layer's factors in a block of their own.
        The first comes first, and takes the place of all."""
        if self._up is None:
            return
        if not adapter:
            # Nothing is left of those that were held before, which may have diverged.
            self._weight[self._outputs :] = 0.0
            self._up.zero_()
        rank, output = adapter * self._block, 0
        for linear in self._linears:
            for pair in linear.pairs:
                down, up = pair.down, pair.up
                self._weight[self._outputs + rank : self._outputs + rank + len(down)] = down
                self._up[rank : rank + len(down), output : output + len(up)] = (up * pair.scale).T
                rank += len(down)
            output += len(linear.weight)

    def __call__(self, inputs: torch.Tensor, adapters: torch.Tensor | None) -> Product:
        """`adapters`: whose each row is; None: there is one for all."""
        outputs = functional.linear(inputs, self._weight, self._bias)
        if self._up is None:
            return Product(outputs, None)
        added = LowRank(outputs[:, self._outputs :], self._up, tuple(self._ranks), adapters)
        product = Product(outputs[:, : self._outputs], added)
        return product if max(self._ranks) <= _FEW_RANKS else Product(product.whole(), None)


def _ranks(linears: Linears) -> list[int]:
    return [sum(len(pair.down) for pair in linear.pairs) for linear in linears]


class GraphedNetwork:
    """Runs pieces of conversations over a cache of their keys and values."""

    def __init__(self, network: Any, kernels: Any, adapters: int = 1) -> None:
        self._llama = llama = Llama(network)
        self._kernels = kernels
        self.adapters = adapters
        """How many there may be at a time."""
        self.layers = [layer.each(lambda linears: _Adapted(linears, adapters)) for layer in llama.layers]
        self._head = _Adapted((llama.head,), adapters)
        self.key_heads, self.head_size = llama.key_heads, llama.head_size
        self.dtype, self.device = llama.dtype, llama.device
        self.vocabulary = len(llama.head.weight)
        self.load()

    @staticmethod
    def knows(network: Any) -> bool:
        """Whether every part of the network is one that is computed here."""
        if not is_plain_llama(network):
            return False
        llama = Llama(network)
        size = llama.head_size
        return llama.rotary_embedding.rope_type in _ROTATIONS and size >= 16 and size & (size - 1) == 0

    def _matrices(self) -> list[_Adapted]:
        return [matrix for layer in self.layers for matrix in layer.matrices] + [self._head]

    def outgrown(self) -> bool:
        """Whether the network has adapters of other ranks now than when this was made."""
        return any(matrix.outgrown() for matrix in self._matrices())

    def load(self, adapter: int = 0) -> None:
        """Take what the network holds now, as the adapter with this number."""
        for matrix in self._matrices():
            matrix.load(adapter)

    def turns(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine by which half a head is turned, for every position."""
        probe = torch.zeros(1, 1, self.head_size, dtype=torch.float32, device=self.device)
        cosine, sine = self._llama.rotary_embedding(probe, torch.arange(positions, device=self.device)[None])
        half = self.head_size // 2
        return cosine[0, :, :half].float().contiguous(), sine[0, :, :half].float().contiguous()

    def __call__(
        self,
        ids: torch.Tensor,
        slots: torch.Tensor,
        starts: torch.Tensor,
        live: torch.Tensor,
        cache: PagedCache,
        turns: tuple[torch.Tensor, torch.Tensor],
        adapters: torch.Tensor,
    ) -> torch.Tensor:
        """Last hidden states, pieces x tokens x width; keys and values go to the pieces' slots from `starts` on. Each piece
        has the adapter of this number."""
        pieces, tokens = ids.shape
        own = self._own(adapters.repeat_interleave(tokens, output_size=pieces * tokens) if tokens > 1 else adapters)
        kernels, llama, epsilon = self._kernels, self._llama, self._llama.epsilon
        positions = (starts[:, None] + torch.arange(tokens, device=ids.device)).flatten()
        hidden = functional.embedding(ids.flatten(), llama.embedding)
        added = None
        for number, layer in enumerate(self.layers):
            normed = kernels.add_norm(hidden, added, layer.before_attention, epsilon)
            mixed = layer.query_key_value(normed, own)
            norms = None if layer.query_norm is None else (layer.query_norm, layer.key_norm, epsilon)
            queries = kernels.turn_and_store(mixed, turns, positions, slots, norms, cache, number, llama.heads)
            seen = kernels.attend(queries, cache, number, starts, slots, live, llama.scale)
            added = layer.out(seen.flatten(1), own)
            normed = kernels.add_norm(hidden, added, layer.before_feed_forward, epsilon)
            added = layer.down(kernels.silu_times(layer.gate_up(normed, own)), own)
        last = kernels.add_norm(hidden, added, llama.last_norm, epsilon)
        states: torch.Tensor = last.view(pieces, tokens, -1)
        return states

    def logits(self, hidden: torch.Tensor, adapters: torch.Tensor) -> torch.Tensor:
        return self._head(hidden, self._own(adapters)).whole()

    def _own(self, adapters: torch.Tensor) -> torch.Tensor | None:
        return None if self.adapters == 1 else adapters
