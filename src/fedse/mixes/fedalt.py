"""FedALT: everybody's own adapter is never overwritten; what the others have learned stands beside it, frozen (Bian and
others, arXiv 2503.11880).

    others_k = mean over m != k of A_m, and of B_m
    W        = base + scale * (B_k A_k + others * B_others A_others)       B_k A_k is trained, kept and sent

The server's mean is over all clients. Each takes what it sent for it out of it, so that what is broadcast is the same for
all, and under a secure sum nobody sees a single update: others_k = (sum - own_k) / (K - 1), which is of two others at least.
The paper weighs own and others by a and 1 - a with a router for each layer, chosen for each token; with a constant a of a
half that is `others: 1` at half of the LoRA scale. There is no router here: no merged adapter could hold one.
Cost: traffic as `mean`; a frozen pair in every pass; the client keeps its own adapter of each round.
There is no agent for everybody: a client that joins plays with the mean of the others and begins with nothing of its own.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.adapters.plan import RESIDUAL, factor, in_part, part
from fedse.errors import BadInput
from fedse.mixes.broadcast import Broadcast
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Sent, Tensors, Vector


class FedAltOptions(PluginOptions):
    """How much of the others is added."""

    others: float = Field(default=1.0, ge=0)
    """Weight of what the others have learned beside the client's own adapter."""


class FedAlt(Broadcast):
    """An own adapter that nobody overwrites, and beside it the mean of the others', frozen."""

    Options = FedAltOptions
    needs_others = True
    own_mixture = True
    needs_plain_mean = True
    needs_lora = True

    def __init__(self, client: str, seed: int, others: float = 1.0) -> None:
        super().__init__(client, seed)
        self.others = others

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        mean = sent.adapter.tensors
        if odd := next((name for name in mean if part(name) or not factor(name)), ""):
            raise BadInput(
                f"mix 'fedalt': it needs an adapter of LoRA pairs alone, and this one has {odd}: use another mix."
            )
        own = kept or {name: tensor if factor(name) == "A" else np.zeros_like(tensor) for name, tensor in mean.items()}
        frozen = {
            in_part(name, RESIDUAL): tensor if factor(name) == "A" else np.float32(self.others) * tensor
            for name, tensor in self._of_the_others(sent).items()
        }
        return Adapter({**own, **frozen}, sent.adapter.config)

    def keep(self, learned: Adapter) -> Tensors:
        return {name: tensor for name, tensor in learned.tensors.items() if not part(name)}

    def _of_the_others(self, sent: Sent) -> Tensors:
        mean, number = sent.adapter.tensors, len(sent.contributed)
        if self.client not in sent.contributed or not sent.own:  # A site that began anew has nothing to take out.
            return mean
        if number == 1:
            return {name: tensor if factor(name) == "A" else np.zeros_like(tensor) for name, tensor in mean.items()}
        return {name: _without(tensor, sent.own[name], number) for name, tensor in mean.items()}


def _without(mean: Vector, own: Vector, number: int) -> Vector:
    others = (number * mean.astype(np.float64) - own) / (number - 1)
    return np.asarray(others, dtype=np.float32)
