"""Clusters: sites that learned in the same directions find each other, and each begins with the mean of its own group.

    d_ij  = 1 - |U_i^T U_j|^2 / r, mean over the modules        HiLoRA's distance between the columns of B_i and B_j
    begin = mean of A_j and of B_j over the group of the client, itself included (+ the common step, `common_step.py`)

The server sends what each client sent last; every client makes the same groups of it (`clusters.py`), so nobody decides for
the others. Where no groups stand out, and for a client that has not sent anything yet, it is the broadcast adapter. HiLoRA
makes groups by spectral clustering of exp(-d^2 / 2 s^2), with s to choose; distances of real adapters lie so close together
(see docs/aggregators.md) that any fixed s makes one group of them. Since the members of a group begin with the same adapter,
they stay close: the first division decides for a long time.
Cost: upload as `broadcast`; download of one adapter more for each client. Every client sees the others' single updates.
Helps: where several sites have the same kind of world, and others a different one.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedse.adapters.plan import factor
from fedse.aggregators.subspaces import subspace_distances
from fedse.mixes.clusters import clusters
from fedse.mixes.common_step import CommonStep, CommonStepOptions
from fedse.plugins.schedules import Ramp, Scheduled
from fedse.types import Sent


class ClusteredOptions(CommonStepOptions):
    """When groups are believed."""

    min_silhouette: float = Field(default=0.01, ge=0, le=1)
    """Smallest mean silhouette of a division into groups; below it everybody takes the broadcast adapter."""
    weight: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Factor of the step from the mean of all clients to the broadcast adapter, which is added to the group's mean."""


class Clustered(CommonStep):
    """The mean of the clients whose adapters write in the same directions."""

    Options = ClusteredOptions
    needs_lora = True

    def __init__(self, client: str, seed: int, min_silhouette: float = 0.01, weight: float | Ramp = 0.0) -> None:
        super().__init__(client, seed, weight)
        self.min_silhouette = min_silhouette

    def members(self, sent: Sent) -> list[str]:
        """Of its own group; nobody where no groups stand out."""
        names = sorted(sent.library)
        if self.client not in names:
            return []
        ups = [name for name in sorted(sent.adapter.tensors) if factor(name) == "B"]
        distances = subspace_distances([sent.library[name][up].astype(np.float64) for name in names] for up in ups)
        if distances is None:
            return []
        groups = clusters(distances, self.min_silhouette)
        own = next(group for group in groups if names.index(self.client) in group)
        return [names[number] for number in own] if len(groups) > 1 else []
