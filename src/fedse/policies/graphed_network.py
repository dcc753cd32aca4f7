"""A Llama-like network as few kernels, with the adapter beside the frozen weights, for recording as a CUDA graph.

The adapter is not merged: where the base is in bfloat16, adding a small update to a weight rounds it away. Its two factors
lie in tensors that stay where they are, so that a recorded graph sees the next adapter without being recorded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from fedse.adapters.llama_layers import is_plain_llama

_ROTATIONS = ("default", "linear", "llama3")


class _Adapted:
    """Linear layers of the same input as one, with their adapters."""

    def __init__(self, *modules: Any) -> None:
        self._modules = modules
        plain = [getattr(module, "base_layer", module) for module in modules]
        weights = [module.weight for module in plain]
        biases = [module.bias for module in plain if module.bias is not None]
        self._ranks = ranks = _ranks(modules)
        self._outputs, rank = sum(len(weight) for weight in weights), sum(ranks)
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
        return self._ranks != _ranks(self._modules)

    def load(self) -> None:
        """Copy the adapter that the network holds now: each layer's factors in a block of their own."""
        if self._up is None:
            return
        rank = output = 0
        for module in self._modules:
            for name in getattr(module, "active_adapters", ()):
                down, up = module.lora_A[name].weight, module.lora_B[name].weight
                self._weight[self._outputs + rank : self._outputs + rank + len(down)] = down
                self._up[rank : rank + len(down), output : output + len(up)] = (up * module.scaling[name]).T
                rank += len(down)
            output += getattr(module, "base_layer", module).weight.shape[0]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = functional.linear(inputs, self._weight, self._bias)
        if self._up is None:
            return outputs
        return outputs[:, : self._outputs].addmm_(outputs[:, self._outputs :], self._up)


def _ranks(modules: Sequence[Any]) -> list[int]:
    return [module.r[name] for module in modules for name in getattr(module, "active_adapters", ())]


class _Layer:
    def __init__(self, layer: Any) -> None:
        attention, feed_forward = layer.self_attn, layer.mlp
        self.before_attention = layer.input_layernorm.weight
        self.query_key_value = _Adapted(attention.q_proj, attention.k_proj, attention.v_proj)
        self.norms = None
        if hasattr(attention, "q_norm"):
            self.norms = (attention.q_norm.weight, attention.k_norm.weight, attention.q_norm.variance_epsilon)
        self.out = _Adapted(attention.o_proj)
        self.before_feed_forward = layer.post_attention_layernorm.weight
        self.gate_up = _Adapted(feed_forward.gate_proj, feed_forward.up_proj)
        self.down = _Adapted(feed_forward.down_proj)

        self.matrices = (self.query_key_value, self.out, self.gate_up, self.down)


class GraphedNetwork:
    """Runs pieces of conversations over a cache of their keys and values."""

    def __init__(self, network: Any, kernels: Any) -> None:
        base = network.get_base_model()
        self._kernels = kernels
        self._body = base.model
        attention = base.model.layers[0].self_attn
        self.layers = [_Layer(layer) for layer in base.model.layers]
        self._head = _Adapted(base.lm_head)
        self._epsilon = base.model.norm.variance_epsilon
        self.heads, self.key_heads = base.config.num_attention_heads, base.config.num_key_value_heads
        self.head_size, self._scale = attention.head_dim, attention.scaling
        self.dtype, self.device = base.dtype, base.device
        self.vocabulary = base.lm_head.weight.shape[0]
        self.load()

    @staticmethod
    def knows(network: Any) -> bool:
        """Whether every part of the network is one that is computed here."""
        if not is_plain_llama(network):
            return False
        body = network.get_base_model().model
        size = body.layers[0].self_attn.head_dim
        return body.rotary_emb.rope_type in _ROTATIONS and size >= 16 and size & (size - 1) == 0

    def _matrices(self) -> list[_Adapted]:
        return [matrix for layer in self.layers for matrix in layer.matrices] + [self._head]

    def outgrown(self) -> bool:
        """Whether the network has adapters of other ranks now than when this was made."""
        return any(matrix.outgrown() for matrix in self._matrices())

    def load(self) -> None:
        """Take the adapter that the network holds now."""
        for matrix in self._matrices():
            matrix.load()

    def turns(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine by which half a head is turned, for every position."""
        probe = torch.zeros(1, 1, self.head_size, dtype=torch.float32, device=self.device)
        cosine, sine = self._body.rotary_emb(probe, torch.arange(positions, device=self.device)[None])
        half = self.head_size // 2
        return cosine[0, :, :half].float().contiguous(), sine[0, :, :half].float().contiguous()

    def __call__(
        self,
        ids: torch.Tensor,
        slots: torch.Tensor,
        starts: torch.Tensor,
        live: torch.Tensor,
        cache: list[tuple[torch.Tensor, torch.Tensor]],
        turns: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Last hidden states, pieces x tokens x width; keys and values go to the pieces' slots from `starts` on."""
        pieces, tokens = ids.shape
        kernels, epsilon = self._kernels, self._epsilon
        positions = (starts[:, None] + torch.arange(tokens, device=ids.device)).flatten()
        hidden = functional.embedding(ids.flatten(), self._body.embed_tokens.weight)
        added = None
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            normed = kernels.add_norm(hidden, added, layer.before_attention, epsilon)
            mixed = layer.query_key_value(normed)
            queries = kernels.turn_and_store(mixed, turns, positions, slots, layer.norms, keys, values, self.heads)
            seen = kernels.attend(queries, keys, values, starts, slots, live, self._scale)
            added = layer.out(seen.flatten(1))
            normed = kernels.add_norm(hidden, added, layer.before_feed_forward, epsilon)
            added = layer.down(kernels.silu_times(layer.gate_up(normed)))
        last = kernels.add_norm(hidden, added, self._body.norm.weight, epsilon)
        states: torch.Tensor = last.view(pieces, tokens, -1)
        return states

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._head(hidden)
