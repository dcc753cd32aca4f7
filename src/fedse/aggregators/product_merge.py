"""What merges in product space share: the clients' changes of each module's product B A become one, in core space.

    change_k = B_k A_k - B_0 A_0            next product = B_0 A_0 + merged(change_1 ... change_K)

The pair that clients train gets the largest ranks of the next product; the rest is broadcast beside it as frozen ranks, up
to `rank` of them (see `residual.py`). Tensors that belong to no pair are averaged.
Cost: upload as `mean`; download and work at the client grow with the residual. For a module of d outputs and k inputs the
server needs about 6 (d + k) ((K + 1) r)^2 operations and holds the factors of one module of all clients; the d x k matrix
is never written out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from fedse.aggregators.core_space import CoreSpace
from fedse.aggregators.factors import Matrix, padded
from fedse.aggregators.residual import ResidualRule
from fedse.plugins import PluginOptions
from fedse.types import ServerState


class ProductMergeOptions(PluginOptions):
    """How far the merged change goes, and what is broadcast beside the shared pair."""

    scale: float = Field(default=1.0, gt=0)
    """Factor of the merged change."""
    rank: int | None = Field(default=64, ge=0)
    """Most frozen ranks beside the shared pair; what does not fit is lost and reported. With 0 the adapter keeps its rank;
    null is all that are needed."""


class ProductMerge(ResidualRule):
    """A variant overrides `merged`."""

    Options: Any = ProductMergeOptions

    def __init__(self, **options: Any) -> None:
        self.options = self.Options.model_validate(options)
        self.rank = self.options.rank

    @abstractmethod
    def merged(self, changes: Sequence[Matrix], rank: int) -> Matrix:
        """One change of all clients' changes, which are cores of one space; `rank` is that of the clients' pairs."""
        raise NotImplementedError

    def split(
        self, ups: Sequence[Matrix], downs: Sequence[Matrix], name: str, state: ServerState
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        space, rank = space_of(ups, downs, name, state), len(state.adapter.tensors[name])
        up, down = space.factors(space.broadcast + self.options.scale * self.merged(space.changes, rank))
        return *padded(up, down, rank), up[:, rank:], down[rank:]


def space_of(ups: Sequence[Matrix], downs: Sequence[Matrix], name: str, state: ServerState) -> CoreSpace:
    """The core space of the module whose broadcast A has this name."""
    down, up = state.adapter.tensors[name], state.adapter.tensors[name.replace(".lora_A.", ".lora_B.")]
    return CoreSpace.of(up.astype(np.float64), down.astype(np.float64), ups, downs)
