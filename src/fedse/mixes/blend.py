"""Share first, keep later: a client begins a round between the broadcast adapter and the one it ended its last round with.

    begin = share * broadcast + (1 - share) * own            factor by factor; share may change from round to round

At 1 it is the paper's way, at 0 every client is alone but for what it was sent before. What sites have in common, the form
of a reply, is learned in the first rounds; what each world needs comes later and is what a mean takes away.
Cost: traffic as `broadcast`; the client keeps its own adapter of each round.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from fedse.adapters.plan import part
from fedse.mixes.broadcast import Broadcast
from fedse.plugins import PluginOptions
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Adapter, Sent, Tensors


class BlendOptions(PluginOptions):
    """How much of the broadcast adapter is taken."""

    share: Annotated[float | Ramp, Scheduled(least=0, most=1)] = 0.5
    """Weight of the broadcast adapter; `{from: 1, to: 0, over: 20}` falls from round 1 to round 20."""


class Blend(Broadcast):
    """A client's own adapter, drawn towards the broadcast one at the beginning of each round."""

    Options: type[PluginOptions] = BlendOptions
    needs_others = True
    own_mixture = True
    needs_whole_adapters = True
    needs_same_factors = True
    keeps_unlearned = True

    def __init__(self, client: str, seed: int, share: float | Ramp = 0.5) -> None:
        super().__init__(client, seed)
        self.share = share

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        share = np.float32(at(self.share, sent.behind + 1))
        blended = {name: share * sent.adapter.tensors[name] + (1 - share) * own for name, own in kept.items()}
        return super().compose(sent, blended)

    def keep(self, learned: Adapter) -> Tensors:
        return {name: tensor for name, tensor in learned.tensors.items() if not part(name)}
