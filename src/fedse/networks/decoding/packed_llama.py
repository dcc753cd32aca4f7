"""Forward passes of a CPU: tokens of any conversations as the rows of one matrix, and attention for each by itself.

A CPU pays for every row, so rows should be text, not padding. Products, norms and gates do not ask whose row they compute.
Attention does: it looks at the keys of one conversation, or of several that lie side by side and look equally far, in their
place. How far a conversation looks depends on its own length alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from fedse.networks.decoding.llama_forward import LlamaForward, Matrix
from fedse.networks.decoding.slot_cache import SlotCache
from fedse.networks.llama import Linears


@dataclass(frozen=True)
class Look:
    """Rows that attend together: several tokens of one conversation, or one of each of several side by side in the cache."""

    row: int
    slot: int
    columns: int
    tokens: int = 1
    conversations: int = 1

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.conversations * self.tokens)

    @property
    def slots(self) -> slice:
        return slice(self.slot, self.slot + self.conversations)

    def gathered(self, queries: torch.Tensor) -> torch.Tensor:
        """Of its rows. Queries that share keys stand one after another, as if they were more tokens of one head."""
        mine = queries[self.rows]
        return mine if self.tokens == 1 else mine.permute(1, 2, 0, 3).flatten(1, 2)[None]

    def spread(self, found: torch.Tensor) -> torch.Tensor:
        """What `gathered` queries found, in rows again."""
        if self.tokens == 1:
            return found
        _, heads, queries, size = found.shape
        return found.view(heads, queries // self.tokens, self.tokens, size).permute(2, 0, 1, 3)

    def bias(self, added: torch.Tensor, group: int) -> torch.Tensor:
        """What is added to its scores, of what is added to those of all rows."""
        mine = added[self.rows, : self.columns]
        return mine[:, None, None] if self.tokens == 1 else mine.expand(group, -1, -1).flatten(0, 1)[None, None]


@dataclass(frozen=True)
class Ends:
    """Rows of which the next token is asked. What the others are in the last layer, beyond keys and values, nobody asks."""

    rows: torch.Tensor
    looks: Sequence[Look]
    """Each at a pair of rows, the same one twice: some libraries round a product with a single row unlike all others."""


class PackedLlama(LlamaForward):
    """The same arithmetic as `LlamaForward` for rows instead of rectangles."""

    def merged(self, linears: Linears) -> Matrix:
        """Stored by columns, in the order in which products with few rows read it fastest."""
        matrix = super().merged(linears)
        return replace(matrix, weight=matrix.weight.t().contiguous().t())

    def next_tokens(
        self, ids: torch.Tensor, positions: torch.Tensor, looks: Sequence[Look], ends: Ends | None, cache: SlotCache
    ) -> torch.Tensor:
        """Logits after the rows in `ends`, or after all; `cache.aim_at` has said where the first rows' keys go, and those of
        further rows go nowhere."""
        hidden = functional.embedding(ids, self._llama.embedding)
        cosine, sine = self._llama.rotary(hidden[None], positions[None])
        turn = (cosine[0, :, None], sine[0, :, None])
        biases = self._biases(looks, positions)
        for layer, stored in zip(self._layers, cache.layers, strict=True):
            queries, keys, values = self._projected(layer, self._norm(hidden, layer.before_attention), turn)
            stored.write(keys[: len(cache.places)], values[: len(cache.places)])
            if ends is not None and layer is self._layers[-1]:
                if not ends.looks:
                    return torch.zeros(0, len(self._llama.embedding))
                pairs = ends.rows.repeat_interleave(2)
                biases = self._biases(ends.looks, positions[pairs])
                seen = self._looked(queries[pairs], ends.looks, biases, stored)[::2]
                hidden = hidden[ends.rows]
            else:
                seen = self._looked(queries, looks, biases, stored)
            hidden = self._fed_forward(layer, hidden + layer.out(seen))
        return self._to_logits(self._norm(hidden, self._llama.last_norm))

    def _biases(self, looks: Sequence[Look], positions: torch.Tensor) -> list[torch.Tensor]:
        """Made once for several layers."""
        later = torch.arange(max(look.columns for look in looks)) > positions[:, None]
        added = torch.zeros(later.shape).masked_fill_(later, -torch.inf)
        return [look.bias(added, self._llama.heads // self._llama.key_heads) for look in looks]

    def _looked(
        self, queries: torch.Tensor, looks: Sequence[Look], biases: Sequence[torch.Tensor], stored: Any
    ) -> torch.Tensor:
        """What the rows find in what the cache's layer has stored."""
        keys, values = stored.keys.transpose(1, 2), stored.values.transpose(1, 2)
        rows, heads, size = queries.shape
        grouped = queries.view(rows, self._llama.key_heads, heads // self._llama.key_heads, size)
        seen = torch.zeros(grouped.shape)
        with _one_thread():
            for look, bias in zip(looks, biases, strict=True):
                found = functional.scaled_dot_product_attention(
                    look.gathered(grouped),
                    keys[look.slots, :, : look.columns],
                    values[look.slots, :, : look.columns],
                    attn_mask=bias,
                    scale=self._llama.scale,
                )
                seen[look.rows] = look.spread(found)
        return seen.flatten(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A look is too little work to be shared: threads that wait for each other, look after look, take longer than one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
