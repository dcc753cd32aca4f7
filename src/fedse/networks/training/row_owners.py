"""Rows of several adapters in one pass: whose each is.

The factors of all adapters stand side by side as one of a higher rank, and of its inner values a row keeps those of its own
adapter: the same products as for one adapter, hardly slower while the rank is small, and rows lie as close as those of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedse.networks.training.packed_attention import Segments


@dataclass(frozen=True)
class RowOwners:
    others: torch.Tensor
    """Whether a row is not the adapter's: rows x adapters."""

    @classmethod
    def of(cls, segments: Segments) -> RowOwners:
        """Of the tokens of all segments, whose groups are the adapters."""
        openings = segments.openings
        owners = openings.group.index_select(0, segments.number_of_each_token())
        return cls(owners[:, None] != torch.arange(len(openings.begins), device=owners.device))

    def at(self, rows: torch.Tensor) -> RowOwners:
        return RowOwners(self.others.index_select(0, rows))

    def keep_own(self, inner: torch.Tensor) -> torch.Tensor:
        """Make inner values of other adapters zero, whatever they are: rows x (adapters x rank)."""
        inner.view(*self.others.shape, -1).masked_fill_(self.others[:, :, None], 0.0)
        return inner

    def sums(self, values: torch.Tensor) -> torch.Tensor:
        """Of each adapter's rows, of which each has one value."""
        return values[:, None].masked_fill(self.others, 0.0).sum(dim=0)

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """To each row the value of its adapter."""
        return values.masked_fill(self.others, 0.0).sum(dim=1)
