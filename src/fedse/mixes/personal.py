"""A private adapter beside the shared one: a second pair of factors for each module that never leaves its client.

W = base + scale * (B A + B_own A_own)            B A is broadcast and sent, B_own A_own is trained and kept

Both are trained together, and clients are evaluated with both.
Cost: traffic as without it; a second pair in every pass, and one on the client's disk for each round.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.adapters.plan import PERSONAL, factor, in_part, part
from fedse.mixes.broadcast import Broadcast
from fedse.plugins import PluginOptions
from fedse.seeds import generator
from fedse.types import Adapter, Sent, Tensors, Vector


class PersonalOptions(PluginOptions):
    """The size of what each client keeps."""

    rank: int = Field(default=8, ge=1)
    """Rank of the private adapter."""


class Personal(Broadcast):
    """A private adapter of each client's own, trained together with the shared one."""

    Options = PersonalOptions
    needs_others = True
    needs_lora = True

    def __init__(self, client: str, seed: int, rank: int = 8) -> None:
        super().__init__(client, seed)
        self.rank = rank

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        own = kept or first_pair(sent.adapter, self.rank, self.client, self.seed)
        return super().compose(sent, own)


def first_pair(broadcast: Adapter, rank: int, client: str, seed: int) -> Tensors:
    """A client's own factors before its first round: LoRA's usual start, which changes nothing about the model."""
    tensors: dict[str, Vector] = {}
    for name, tensor in broadcast.tensors.items():
        if part(name) or not factor(name):
            continue
        if factor(name) == "A":
            bound = 1.0 / np.sqrt(tensor.shape[1])
            drawn = generator(seed, client, "personal adapter", name).uniform(-bound, bound, (rank, tensor.shape[1]))
            tensors[in_part(name, PERSONAL)] = drawn.astype(np.float32)
        else:
            tensors[in_part(name, PERSONAL)] = np.zeros((tensor.shape[0], rank), dtype=np.float32)
    return tensors
