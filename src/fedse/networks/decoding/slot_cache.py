"""Keys and values of many conversations of different lengths, each in a row of its own that lives from turn to turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_STEP = 128
"""Attention looks at a multiple of this many columns: the longest conversation, rounded up."""


class SlotCache(Cache):  # type: ignore[misc]
    """A transformers cache whose rows are written at positions of their own.

    `aim` says which rows the next forward pass is about and where its tokens go; no left padding is ever needed. Memory
    follows the longest conversation, up to `longest` tokens.
    """

    def __init__(self, layers: int, slots: int, longest: int) -> None:
        self.longest = longest
        self.rows: torch.Tensor | None = None
        self.positions = torch.zeros(0, 0, dtype=torch.long)
        self.places = torch.zeros(0, dtype=torch.long)
        self.columns = 0
        self.capacity = 0
        self._all_rows = torch.arange(slots)
        super().__init__(layers=[_SlotLayer(self, slots) for _ in range(layers)])

    def aim(self, rows: torch.Tensor | None, starts: torch.Tensor, tokens: int) -> torch.Tensor:
        """Returns the attention mask for `tokens` new tokens of each row from its start; rows None means all slots."""
        self.rows = rows
        self.positions = starts[:, None] + torch.arange(tokens, device=starts.device)
        self.columns = _whole_steps(int(starts.max()) + tokens)
        self._make_room()
        if rows is None:
            rows = self._all_rows = self._all_rows.to(starts.device)
        self.places = (rows[:, None] * self.capacity + self.positions).flatten()
        return (torch.arange(self.columns, device=starts.device) <= self.positions[:, :, None])[:, None]

    def aim_at(self, slots: torch.Tensor, positions: torch.Tensor, columns: int) -> None:
        """The next forward pass writes tokens of any slots, each at a position of its own below `columns`."""
        self.columns = columns
        self._make_room()
        self.places = slots * self.capacity + positions

    def _make_room(self) -> None:
        if self.columns > self.capacity:
            # Doubling moves every key a bounded number of times, however long conversations become.
            self.capacity = max(_whole_steps(self.columns), min(2 * self.capacity, _whole_steps(self.longest)))

    def copy_out(self, slot: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(layer.keys[slot, :length].clone(), layer.values[slot, :length].clone()) for layer in self.layers]

    def copy_in(self, slot: int, content: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for layer, (keys, values) in zip(self.layers, content, strict=True):
            layer.keys[slot, : len(keys)] = keys
            layer.values[slot, : len(values)] = values


def _whole_steps(columns: int) -> int:
    return -(-columns // _STEP) * _STEP


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Stored as slots x columns x heads x head size, so that what one token writes lies in one piece."""

    def __init__(self, owner: SlotCache, slots: int) -> None:
        super().__init__()
        self.owner = owner
        self.slots = slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._empty(key_states)
        self.values = self._empty(value_states)
        self.is_initialized = True

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(self.slots, self.owner.capacity, like.shape[1], like.shape[3])

    def _grow(self, held: torch.Tensor) -> torch.Tensor:
        slots, columns, heads, size = held.shape
        if columns >= self.owner.capacity:
            return held
        grown = held.new_zeros(slots, self.owner.capacity, heads, size)
        grown[:, :columns] = held
        return grown

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values (rows x heads x tokens x size); returns all that the rows may look at, alike in form."""
        self._make_room_for(key_states, value_states)
        return self._written(self.keys, key_states), self._written(self.values, value_states)

    def write(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keys and values of tokens (tokens x heads x size), to where `aim_at` said."""
        self._make_room_for(keys[None].transpose(1, 2), values[None].transpose(1, 2))
        self.keys.flatten(0, 1).index_copy_(0, self.owner.places, keys)
        self.values.flatten(0, 1).index_copy_(0, self.owner.places, values)

    def _make_room_for(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = self._grow(self.keys), self._grow(self.values)

    def _written(self, held: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        owner = self.owner
        # Layers may lie on several devices; each keeps its own keys and values.
        held.flatten(0, 1).index_copy_(0, owner.places.to(new.device), new.transpose(1, 2).flatten(0, 1))
        seen = held[:, : owner.columns]
        if owner.rows is not None:
            seen = seen.index_select(0, owner.rows.to(new.device))
        return seen.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        del query_length
        return self.owner.columns, 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return -1
