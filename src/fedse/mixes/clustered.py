"""Clusters: sites that learned in the same directions find each other, and each begins with the mean of its own group.

    d_ij  = 1 - |U_i^T U_j|^2 / r, mean over the modules        HiLoRA's distance between the columns of B_i and B_j
    begin = mean of A_j and of B_j over the group of the client, itself included

The server sends what each client sent last; every client makes the same groups of it (`clusters.py`), so nobody decides for
the others. Where no groups stand out, and for a client that has not sent anything yet, it is the broadcast adapter. HiLoRA
makes groups by spectral clustering of exp(-d^2 / 2 s^2), with s to choose; distances of real adapters lie so close together
(see docs/aggregators.md) that any fixed s makes one group of them. Since the members of a group begin with the same adapter,
they stay close: the first division decides for a long time.
Cost: upload as `broadcast`; download of one adapter more for each client. Every client sees the others' single updates.
Helps: where several sites have the same kind of world, and others a different one.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.adapters.plan import factor
from fedse.aggregators.subspaces import subspace_distances
from fedse.mixes.broadcast import Broadcast
from fedse.mixes.clusters import clusters
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Sent, Tensors


class ClusteredOptions(PluginOptions):
    """When groups are believed."""

    least: float = Field(default=0.01, ge=0, le=1)
    """Smallest mean silhouette of a division into groups; below it everybody takes the broadcast adapter."""


class Clustered(Broadcast):
    """The mean of the clients whose adapters write in the same directions."""

    Options = ClusteredOptions
    needs_others = True
    needs_library = True
    needs_lora = True
    own_mixture = True

    def __init__(self, client: str, seed: int, least: float = 0.01) -> None:
        super().__init__(client, seed)
        self.least = least

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        members = self.members(sent)
        return super().compose(sent, {**kept, **mean_of([sent.library[name] for name in members])})

    def members(self, sent: Sent) -> list[str]:
        """Names of those whose mean this client begins with; nobody where that is the broadcast adapter."""
        names = sorted(sent.library)
        if self.client not in names:
            return []
        ups = [name for name in sorted(sent.adapter.tensors) if factor(name) == "B"]
        distances = subspace_distances([sent.library[name][up].astype(np.float64) for name in names] for up in ups)
        if distances is None:
            return []
        groups = clusters(distances, self.least)
        own = next(group for group in groups if names.index(self.client) in group)
        return [names[number] for number in own] if len(groups) > 1 else []


def mean_of(adapters: list[Tensors]) -> Tensors:
    """Tensor by tensor; nothing of none."""
    names = adapters[0].keys() if adapters else ()
    return {
        name: np.asarray(np.mean([each[name] for each in adapters], axis=0, dtype=np.float64), dtype=np.float32)
        for name in names
    }
