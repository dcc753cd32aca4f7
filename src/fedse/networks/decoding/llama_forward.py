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

from fedse.networks.decoding.slot_cache import SlotCache
from fedse.networks.llama import Linear, Linears, Llama, LlamaLayer, is_plain_llama, joined

_MOST_BYTES = 4 * 2**30
"""Merging makes a second copy of the matrices. Larger networks gain little by it and would need much memory."""


@dataclass(frozen=True)
class Matrix:
    """Of inputs to outputs, adapter included."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, self.weight, self.bias)


class LlamaForward:
    """The network as it was when `load` was called last."""

    def __init__(self, network: Any) -> None:
        self._llama = Llama(network)
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
        self._layers = [layer.each(self.merged) for layer in self._llama.layers]
        self._to_logits = self.merged((self._llama.head,))

    def merged(self, linears: Linears) -> Matrix:
        """Linear layers of the same input as one, with their adapters added to their weights."""
        biases = [linear.bias for linear in linears if linear.bias is not None]
        return Matrix(joined([_merged_weight(linear) for linear in linears]), joined(biases) if biases else None)

    def logits(self, ids: torch.Tensor, mask: torch.Tensor, cache: SlotCache, keep: torch.Tensor) -> torch.Tensor:
        """Next-token logits of each row after its token `keep`."""
        hidden = functional.embedding(ids, self._llama.embedding)
        cosine, sine = self._llama.rotary(hidden, cache.positions)
        turn = (cosine[:, :, None], sine[:, :, None])
        bias = self._mask_of_groups(mask)
        for layer, stored in zip(self._layers, cache.layers, strict=True):
            hidden = hidden + self._attended(layer, self._norm(hidden, layer.before_attention), turn, bias, stored)
            hidden = self._fed_forward(layer, hidden)
        last = hidden[torch.arange(len(ids), device=ids.device), keep] if ids.shape[1] > 1 else hidden[:, 0]
        return self._to_logits(self._norm(last, self._llama.last_norm))

    def _norm(self, inputs: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(inputs, gain.shape, gain, self._llama.epsilon)

    def _fed_forward(self, layer: LlamaLayer[Matrix], hidden: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(self._norm(hidden, layer.before_feed_forward)).chunk(2, dim=-1)
        return hidden + layer.down(functional.silu(gate) * up)

    def _mask_of_groups(self, mask: torch.Tensor) -> torch.Tensor:
        """The mask as numbers to add, made once for all layers, for the queries of a group one after another."""
        rows, _, tokens, columns = mask.shape
        group = self._llama.heads // self._llama.key_heads
        added = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -torch.inf)
        if tokens == 1:
            return added
        return added.expand(rows, group, tokens, columns).reshape(rows, 1, group * tokens, columns)

    def _attended(
        self,
        layer: LlamaLayer[Matrix],
        hidden: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        stored: Any,
    ) -> torch.Tensor:
        rows, tokens, _ = hidden.shape
        heads, key_heads, size = self._llama.heads, self._llama.key_heads, self._llama.head_size
        queries, keys, values = self._projected(layer, hidden, turn)
        all_keys, all_values = stored.update(keys.transpose(1, 2), values.transpose(1, 2))
        # Queries that share keys and values stand one after another, as if they were more tokens of one head.
        grouped = queries.view(rows, tokens, key_heads, heads // key_heads, size).permute(0, 2, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(
            grouped.reshape(rows, key_heads, -1, size), all_keys, all_values, attn_mask=bias, scale=self._llama.scale
        )
        seen = seen.view(rows, key_heads, heads // key_heads, tokens, size).permute(0, 3, 1, 2, 4)
        return layer.out(seen.reshape(rows, tokens, heads * size))

    def _projected(
        self, layer: LlamaLayer[Matrix], hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values of tokens: in front as `hidden`, then heads, then the size of a head."""
        heads, key_heads, size = self._llama.heads, self._llama.key_heads, self._llama.head_size
        mixed = layer.query_key_value(hidden).view(*hidden.shape[:-1], heads + 2 * key_heads, size)
        turning, values = mixed[..., : heads + key_heads, :], mixed[..., heads + key_heads :, :]
        if layer.query_norm is not None and layer.key_norm is not None:
            normed = (
                self._norm(turning[..., :heads, :], layer.query_norm),
                self._norm(turning[..., heads:, :], layer.key_norm),
            )
            turning = torch.cat(normed, dim=-2)
        cosine, sine = turn
        turned = torch.addcmul(turning * cosine, turning.roll(size // 2, -1), sine)
        return turned[..., :heads, :], turned[..., heads:, :], values


def _merged_weight(linear: Linear) -> torch.Tensor:
    weight = linear.weight
    for pair in linear.pairs:
        weight = weight + pair.up @ pair.down * pair.scale
    return weight
