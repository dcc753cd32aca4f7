"""Keys and values of many conversations on a GPU, in pages: a conversation takes as many as it is long.

A table on the device says where the pages of each slot lie. A recorded graph knows the table, and no page: the stock of
pages grows without a graph being recorded again and without a key being moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
import torch

from fedse.errors import BadInput, GpuFull

PAGE = 256
"""Tokens of a page: a multiple of the columns that the kernel for attention reads at once."""
UNIT = 16
"""Elements in which the table counts, so that the compiler knows that keys can be read many at a time."""
_GROWTH = 8
"""The stock grows by at least one page for each so many slots: many small pieces of memory would be slow to get."""


class PagedCache:
    """A page holds all layers' keys and values of some tokens that follow one another in a conversation."""

    def __init__(
        self,
        slots: int,
        longest: int,
        layers: int,
        key_heads: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`longest`: tokens that a conversation may have."""
        self._slots, self._longest = slots, longest
        self._shape = (layers, 2, PAGE, key_heads, head_size)
        self._dtype, self._device = dtype, device
        self.base = torch.zeros(self._shape, dtype=dtype, device=device)
        """Nobody's page, from which the table counts. Rows that fill up a pass write here."""
        # One column more than conversations have pages, because the kernel reads one ahead.
        self.table = torch.zeros(slots + 1, _pages(longest) + 1, dtype=torch.long, device=device)
        """For each slot, and for the spare one, how many units behind the first page its own are; 0 where it has none."""
        self.stock: list[torch.Tensor] = []
        """Every page but the first."""
        self._free: list[int] = []
        self._taken: list[list[int]] = [[] for _ in range(slots)]

    @property
    def nbytes(self) -> int:
        """Of all pages, taken or free."""
        return (1 + len(self.stock)) * self.base.nbytes

    @property
    def tokens_taken(self) -> int:
        """Those that the pages of open conversations have room for."""
        return PAGE * sum(map(len, self._taken))

    def unit_of(self, page: torch.Tensor) -> int:
        """What the table says where this page is."""
        return (page.data_ptr() - self.base.data_ptr()) // (UNIT * self._dtype.itemsize)

    def parts(self, layer: int) -> tuple[int, int]:
        """Where keys and values of a layer begin in a page, in elements."""
        part = self.base[0, 0].numel()
        return 2 * layer * part, (2 * layer + 1) * part

    def reserve(self, lengths: Mapping[int, int]) -> None:
        """Give slots pages for so many tokens from the beginning of their conversations, those that they have included."""
        if (most := max(lengths.values())) > self._longest:
            raise ValueError(f"a conversation of {most} tokens, where {self._longest} is the most")
        missing = {slot: _pages(length) - len(self._taken[slot]) for slot, length in lengths.items()}
        missing = {slot: count for slot, count in missing.items() if count > 0}
        if not missing:
            return
        if (lacking := sum(missing.values()) - len(self._free)) > 0:
            self._grow(lacking)
        places, units = list[int](), list[int]()
        for slot, count in missing.items():
            for _ in range(count):
                places.append(slot * self.table.shape[1] + len(self._taken[slot]))
                self._taken[slot].append(number := self._free.pop())
                units.append(self.unit_of(self.stock[number]))
        where, what = torch.from_numpy(np.array([places, units])).to(self._device, non_blocking=True)
        self.table.view(-1).index_copy_(0, where, what)

    def release(self, slot: int) -> None:
        """The conversation's pages are for others. Whatever is still written for it goes to nobody's page."""
        if self._taken[slot]:
            self.table[slot].zero_()
            self._free += self._taken[slot]
            self._taken[slot] = []

    def release_all(self) -> None:
        self.table.zero_()
        self._free = list(range(len(self.stock)))
        self._taken = [[] for _ in range(self._slots)]

    def copy_out(self, slot: int, length: int) -> Sequence[torch.Tensor]:
        """Page by page, what the conversation has of its first tokens."""
        return [
            self.stock[number][:, :, : length - begin].clone()
            for number, begin in zip(self._taken[slot], range(0, length, PAGE), strict=False)
        ]

    def copy_in(self, slot: int, content: Sequence[torch.Tensor]) -> None:
        """Begin a conversation with what was copied out of another."""
        self.reserve({slot: sum(part.shape[2] for part in content)})
        for number, part in zip(islice(self._taken[slot], len(content)), content, strict=True):
            self.stock[number][:, :, : part.shape[2]] = part

    def _grow(self, lacking: int) -> None:
        generous = max(lacking, self._slots // _GROWTH)
        for count in sorted({lacking, generous}, reverse=True):
            try:
                grown = torch.empty((count, *self._shape), dtype=self._dtype, device=self._device)
            except torch.OutOfMemoryError as error:
                refused = error
                continue
            self._free += range(len(self.stock), len(self.stock) + count)
            self.stock += grown
            return
        needed = self.nbytes + lacking * self.base.nbytes
        ever = needed < torch.cuda.get_device_properties(self._device).total_memory
        raise (GpuFull if ever else BadInput)(
            f"policy.slots: {self._slots} conversations need {needed / 2**30:.1f} GiB for the keys and values of "
            f"{(len(self.stock) + lacking) * PAGE} tokens, more than the GPU {'has left' if ever else 'has'}: lower "
            f"`policy.slots`{', or let other processes leave it first' if ever else ''}."
        ) from refused


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE)
