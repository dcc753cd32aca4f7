"""Nobody's adapter is replaced by a mean; what everybody takes is the step that the server makes beyond the mean.

    begin_k = own_k + weight * (broadcast - mean over j of own_j)            own_j is what client j sent last

With `aggregator: mean` the bracket is nothing, and every client would go on alone: that is refused. With momentum at the
server the broadcast is ahead of the mean, by what successive rounds of all clients agree on: that is added to each client's
own adapter. With a weight of 1 and everybody there, the mean of all beginnings is the broadcast adapter, so that the
server's step is still about what everybody began with. Where clients are left out of rounds it would not be, and momentum
would go on without end: that is refused, too. Where a mean takes away what only one client learned, this keeps all of it.
Cost: upload as `broadcast`; download of one adapter more for each client. Every client sees the others' single updates.
There is no agent for everybody: a client that joins begins with the broadcast adapter.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedse.adapters.means import mean_of
from fedse.mixes.broadcast import Broadcast
from fedse.plugins import PluginOptions
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Adapter, Sent, Tensors


class CommonStepOptions(PluginOptions):
    """How much of the common step is taken."""

    weight: Annotated[float | Ramp, Scheduled(least=0)] = 1.0
    """Factor of the step from the mean of all clients to the broadcast adapter; with 0 everybody goes on alone."""


class CommonStep(Broadcast):
    """A client's own adapter, and the server's step beyond the mean of all. A variant says whose mean stands for its own."""

    Options = CommonStepOptions
    needs_others = True
    needs_library = True
    needs_same_factors = True
    adds_server_step = True
    own_mixture = True

    def __init__(self, client: str, seed: int, weight: float | Ramp = 1.0) -> None:
        super().__init__(client, seed)
        self.weight = weight

    def members(self, sent: Sent) -> list[str]:
        """Names of those whose mean this client goes on with; nobody where it takes the broadcast adapter."""
        return [self.client] if self.client in sent.library else []

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        begun = mean_of([sent.library[name] for name in self.members(sent)])
        weight = at(self.weight, sent.behind + 1)
        if begun and weight:
            everybody = mean_of(list(sent.library.values()))
            begun = {
                name: _stepped(own, sent.adapter.tensors[name], everybody[name], weight) for name, own in begun.items()
            }
        return super().compose(sent, {**kept, **begun})


def _stepped(own: np.ndarray, broadcast: np.ndarray, everybody: np.ndarray, weight: float) -> np.ndarray:
    return np.asarray(own + weight * (broadcast.astype(np.float64) - everybody), dtype=np.float32)
