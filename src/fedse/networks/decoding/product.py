"""A product with frozen matrices whose adapters are still to be added."""

from __future__ import annotations

from typing import NamedTuple

import torch


class LowRank(NamedTuple):
    """What adapters add to a product, as their factors."""

    inner: torch.Tensor
    """Rows x ranks: the inner values of all adapters, one block of ranks after another."""
    up: torch.Tensor
    """Ranks x outputs."""
    ranks: tuple[int, ...]
    """Of each linear layer in the product, in one block."""
    adapters: torch.Tensor | None
    """Whose each row is; None where there is one for all."""

    def whole(self) -> torch.Tensor:
        """The inner values, but of each row only those of its own adapter."""
        if self.adapters is None:
            return self.inner
        blocks = self.inner.reshape(len(self.inner), -1, sum(self.ranks))
        own = self.adapters[:, None] == torch.arange(blocks.shape[1], device=blocks.device)
        return torch.where(own[:, :, None], blocks, 0.0).flatten(1)


class Product(NamedTuple):
    """Whoever reads the outputs adds the adapters' share while it reads: a kernel of its own would take longer to launch
    than to compute."""

    outputs: torch.Tensor
    added: LowRank | None

    def whole(self) -> torch.Tensor:
        if self.added is None:
            return self.outputs
        return self.outputs.addmm(self.added.whole(), self.added.up)
