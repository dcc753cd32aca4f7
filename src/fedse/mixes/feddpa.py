"""FedDPA-T: the private and the shared adapter are trained one after the other (Yang and others, arXiv 2403.19211).

    first     W = base + scale * (weight * B A + B_own A_own)       B A frozen, B_own A_own trained and kept
    then      W = base + scale * B A                                B A trained and sent
    at play   as in `first`

Trained together (`personal`), the private adapter takes over what the shared one would have learned; here each has to do it
by itself. The paper weighs the two by a and 1 - a. A private adapter that begins at zero finds its own size, so that only
the shared one has a weight here; the paper also chooses it anew for each input, which no merged adapter can.
Cost: traffic as `broadcast`; two lessons a round instead of one.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from fedse.adapters.plan import factor, part
from fedse.mixes.personal import Personal, PersonalOptions
from fedse.types import Adapter, Lessons, Sent, Tensors


class FedDpaOptions(PersonalOptions):
    """Rank 8 and a weight of a half are the paper's."""

    weight: float = Field(default=0.5, ge=0)
    """How much of the shared adapter is added to the private one, when playing and while the private one is trained."""


class FedDpa(Personal):
    """A private adapter that is trained on top of the shared one; the shared one is trained as if there were none."""

    Options = FedDpaOptions
    own_mixture = True
    needs_whole_adapters = True
    freezes_shared = True

    def __init__(self, client: str, seed: int, rank: int = 8, weight: float = 0.5) -> None:
        super().__init__(client, seed, rank)
        self.weight = weight

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        return self.together(super().compose(sent, kept))

    def together(self, learned: Adapter) -> Adapter:
        """Both, with the weight that the shared one has at play."""
        # The scale of B is the scale of the product.
        weighed = {
            name: tensor * self.weight
            for name, tensor in _shared(learned).items()
            if factor(name) == "B" or not factor(name)
        }
        return Adapter({**learned.tensors, **weighed}, learned.config)

    def lessons(self, sent: Sent, adapter: Adapter) -> Lessons:
        own = yield replace(adapter, frozen=adapter.frozen | _shared(adapter).keys())
        shared = yield sent.adapter
        return Adapter({**own.tensors, **shared.tensors}, adapter.config)


def _shared(adapter: Adapter) -> Tensors:
    return {name: tensor for name, tensor in adapter.tensors.items() if not part(name)}
