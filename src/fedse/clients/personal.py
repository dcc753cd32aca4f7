"""A private adapter beside the shared one: a second pair of factors for each module that never leaves its client.

W = base + scale * (B A + B_own A_own)            B A is broadcast and sent, B_own A_own is trained and kept
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.adapters.plan import PERSONAL, factor, in_part, part
from fedse.plugins import PluginOptions
from fedse.seeds import generator
from fedse.types import Adapter, Tensors, Vector


class PersonalOptions(PluginOptions):
    """What each client keeps for itself. Both adapters are trained together, and clients are evaluated with both."""

    rank: int = Field(default=0, ge=0)
    """Rank of a private adapter that each client keeps beside the shared one; 0: there is none."""


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
