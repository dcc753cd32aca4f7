"""Keys and values of many conversations of different lengths, each in a row of its own that lives from turn to turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_GROW = 128
"""Columns are added in steps of this many, so that memory follows the longest conversation."""


class SlotCache(Cache):  # type: ignore[misc]
    """A transformers cache whose rows are written at positions of their own.

    `aim` says which rows the next forward pass is about and where its tokens go; no left padding is ever needed.
    """

    def __init__(self, layers: int, slots: int) -> None:
        self.rows: torch.Tensor | None = None
        self.positions = torch.zeros(0, 0, dtype=torch.long)
        self.columns = 0
        super().__init__(layers=[_SlotLayer(self, slots) for _ in range(layers)])

    def aim(self, rows: torch.Tensor | None, starts: torch.Tensor, tokens: int) -> torch.Tensor:
        """Returns the attention mask for `tokens` new tokens of each row from its start; rows None means all slots."""
        self.rows = rows
        self.positions = starts[:, None] + torch.arange(tokens, device=starts.device)
        needed = int(self.positions.max()) + 1
        self.columns = -(-needed // _GROW) * _GROW
        return (torch.arange(self.columns, device=starts.device) <= self.positions[:, :, None])[:, None]

    def copy_out(self, slot: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(layer.keys[slot, :, :length].clone(), layer.values[slot, :, :length].clone()) for layer in self.layers]

    def copy_in(self, slot: int, content: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for layer, (keys, values) in zip(self.layers, content, strict=True):
            layer.keys[slot, :, : keys.shape[1]] = keys
            layer.values[slot, :, : values.shape[1]] = values


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    def __init__(self, owner: SlotCache, slots: int) -> None:
        super().__init__()
        self.owner = owner
        self.slots = slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._empty(key_states)
        self.values = self._empty(value_states)
        self.is_initialized = True

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(self.slots, like.shape[1], self.owner.columns, like.shape[3])

    def _grow(self, held: torch.Tensor) -> torch.Tensor:
        if held.shape[2] >= self.owner.columns:
            return held
        grown = self._empty(held)
        grown[:, :, : held.shape[2]] = held
        return grown

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = self._grow(self.keys), self._grow(self.values)
        owner = self.owner
        rows = torch.arange(self.slots, device=key_states.device) if owner.rows is None else owner.rows
        self.keys[rows[:, None], :, owner.positions] = key_states.transpose(1, 2)
        self.values[rows[:, None], :, owner.positions] = value_states.transpose(1, 2)
        keys, values = self.keys[:, :, : owner.columns], self.values[:, :, : owner.columns]
        return (keys, values) if owner.rows is None else (keys[rows], values[rows])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        del query_length
        return self.owner.columns, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1
