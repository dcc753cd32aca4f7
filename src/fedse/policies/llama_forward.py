"""Fast forward passes for Llama-like networks: the adapter merged into fused matrices, few and large operations.

Small networks spend most of their time between operations, not in them. This is the same arithmetic as the network's own
in plain PyTorch, with the query, key and value matrices in one, the gate and up matrices in one, and without repeating keys
and values for queries that share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fedse.adapters.llama_layers import is_plain_llama
from fedse.policies.slot_cache import SlotCache

_MOST_BYTES = 4 * 2**30
"""Merging makes a second copy of the matrices. Larger networks gain little by it and would need much memory."""


@dataclass(frozen=True)
class _Matrix:
    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, self.weight, self.bias)


@dataclass(frozen=True)
class _Norm:
    weight: torch.Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> _Norm:
        return cls(module.weight, module.variance_epsilon)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(inputs, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True)
class _Layer:
    before_attention: _Norm
    query_key_value: _Matrix
    query_norm: _Norm | None
    key_norm: _Norm | None
    out: _Matrix
    before_feed_forward: _Norm
    gate_up: _Matrix
    down: _Matrix


class LlamaForward:
    """The network as it was when `load` was called last."""

    def __init__(self, network: Any) -> None:
        base = network.get_base_model()
        self._head, self._body = base.lm_head, base.model
        attention = base.model.layers[0].self_attn
        self._head_size, self._scale = attention.head_dim, attention.scaling
        self._heads, self._key_heads = base.config.num_attention_heads, base.config.num_key_value_heads
        self.load()

    @staticmethod
    def suits(network: Any) -> bool:
        """Whether this class computes what the network does, and faster: float32, one device, known in every part."""
        if not is_plain_llama(network) or network.config._attn_implementation != "sdpa":
            return False
        parameters = list(network.parameters())
        if {(parameter.dtype, parameter.device) for parameter in parameters} != {(torch.float32, parameters[0].device)}:
            return False
        return bool(sum(parameter.nbytes for parameter in parameters) <= _MOST_BYTES)

    @torch.no_grad()
    def load(self) -> None:
        """Merge the adapter that the network holds now."""
        self._layers = []
        for layer in self._body.layers:
            attention, feed_forward = layer.self_attn, layer.mlp
            self._layers.append(
                _Layer(
                    before_attention=_Norm.of(layer.input_layernorm),
                    query_key_value=_fused(attention.q_proj, attention.k_proj, attention.v_proj),
                    query_norm=_Norm.of(attention.q_norm) if hasattr(attention, "q_norm") else None,
                    key_norm=_Norm.of(attention.k_norm) if hasattr(attention, "k_norm") else None,
                    out=_merged(attention.o_proj),
                    before_feed_forward=_Norm.of(layer.post_attention_layernorm),
                    gate_up=_fused(feed_forward.gate_proj, feed_forward.up_proj),
                    down=_merged(feed_forward.down_proj),
                )
            )
        self._norm = _Norm.of(self._body.norm)
        self._to_logits = _merged(self._head)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`."""
        hidden = functional.embedding(ids, self._body.embed_tokens.weight)
        cosine, sine = self._body.rotary_emb(hidden, cache.positions)
        # Turning a vector takes its halves exchanged, the then first one negated; the sign goes into the sine once.
        sine[..., : self._head_size // 2].neg_()
        turn = (cosine[:, :, None], sine[:, :, None])
        bias = self._mask_of_groups(mask)
        for layer, stored in zip(self._layers, cache.layers, strict=True):
            hidden = hidden + self._attended(layer, layer.before_attention(hidden), turn, bias, stored)
            gate, up = layer.gate_up(layer.before_feed_forward(hidden)).chunk(2, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate) * up)
        last = hidden[torch.arange(len(ids), device=ids.device), keep] if ids.shape[1] > 1 else hidden[:, 0]
        return self._to_logits(self._norm(last))

    def _mask_of_groups(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask as numbers to add, made once for all layers, for the queries of a group one after another."""
        rows, _, tokens, columns = mask.shape
        group = self._heads // self._key_heads
        added = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
        if tokens == 1:
            return added
        return added.expand(rows, group, tokens, columns).reshape(rows, 1, group * tokens, columns)

    def _attended(
        self,
        layer: _Layer,
        hidden: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        stored: Any,
    ) -> torch.Tensor:
        rows, tokens, _ = hidden.shape
        heads, key_heads, size = self._heads, self._key_heads, self._head_size
        mixed = layer.query_key_value(hidden).view(rows, tokens, heads + 2 * key_heads, size)
        turning, values = mixed[:, :, : heads + key_heads], mixed[:, :, heads + key_heads :]
        if layer.query_norm is not None and layer.key_norm is not None:
            turning = torch.cat((layer.query_norm(turning[:, :, :heads]), layer.key_norm(turning[:, :, heads:])), dim=2)
        cosine, sine = turn
        turned = torch.addcmul(turning * cosine, turning.roll(size // 2, -1), sine)
        queries, keys = turned[:, :, :heads], turned[:, :, heads:]
        all_keys, all_values = stored.update(keys.transpose(1, 2), values.transpose(1, 2))
        # Queries that share keys and values stand one after another, as if they were more tokens of one head.
        grouped = queries.view(rows, tokens, key_heads, heads // key_heads, size).permute(0, 2, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(
            grouped.reshape(rows, key_heads, -1, size), all_keys, all_values, attn_mask=bias, scale=self._scale
        )
        seen = seen.view(rows, key_heads, heads // key_heads, tokens, size).permute(0, 3, 1, 2, 4)
        return layer.out(seen.reshape(rows, tokens, heads * size))


def _merged(module: Any) -> _Matrix:
    """A linear layer with its adapter, if it has one, added to its weights."""
    if not hasattr(module, "base_layer"):
        return _Matrix(module.weight, module.bias)
    weight = module.base_layer.weight
    for name in module.active_adapters:
        weight = weight + module.get_delta_weight(name)
    return _Matrix(weight, module.base_layer.bias)


def _fused(*modules: Any) -> _Matrix:
    """Linear layers of the same input as one."""
    merged = [_merged(module) for module in modules]
    biases = [matrix.bias for matrix in merged if matrix.bias is not None]
    return _Matrix(torch.cat([matrix.weight for matrix in merged]), torch.cat(biases) if biases else None)
