"""Products over the rows of each unit: what a gradient is made of when every unit's is wanted by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class UnitRows:
    """Rows that lie one unit after another, and a rectangle in which each unit has a line as long as the longest."""

    units: int
    rows: torch.Tensor
    """Which row stands in each place of the rectangle. Beyond a unit's end it is one of the unit's own: a row of another may
    not be finite."""
    beyond: torch.Tensor
    """Which places are beyond their unit's end, as a column."""

    @classmethod
    def of(cls, counts: Sequence[int], device: torch.device) -> UnitRows:
        """Each unit has so many rows, at least one."""
        own = np.array(counts)[:, None]
        places = np.arange(own.max())
        rows = (np.cumsum(own) - own[:, 0])[:, None] + np.minimum(places, own - 1)
        beyond = (places >= own).reshape(-1, 1)
        return cls(len(counts), torch.from_numpy(rows.ravel()).to(device), torch.from_numpy(beyond).to(device))

    def products(self, narrow: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        """narrow^T wide of each unit: units x columns of the one x columns of the other."""
        lines = narrow.index_select(0, self.rows).masked_fill_(self.beyond, 0.0).view(self.units, -1, narrow.shape[1])
        return torch.bmm(lines.mT, wide.index_select(0, self.rows).view(self.units, -1, wide.shape[1]))
