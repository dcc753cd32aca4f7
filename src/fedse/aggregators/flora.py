"""FLoRA: all products are stacked and frozen, and the shared pair starts afresh (Wang and others, arXiv 2409.05976).

    residual += mean_k B_k A_k = [B_1 ... B_K] / K @ [A_1; ...; A_K]
    next B = 0,  next A = drawn anew as LoRA's usual start, the same on every machine and, as it
                 is named by the present A, another for another seed of the run

The paper merges the stack into the base model; here it is broadcast as further ranks of the adapter (see `residual.py`).
Tensors that belong to no pair are averaged.
Cost: upload as `mean`. Download and work at the client grow by at most K r ranks each round, until the residual has as many
as the smaller side of a module; the option `rank` bounds it. Server as `fedex_lora`.
Helps: where clients have different ranks, and in few, long rounds. In many short rounds the restarts hurt: each round begins
with B = 0 and has to find its directions again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Matrix, side_by_side
from fedse.aggregators.residual import ResidualRule
from fedse.aggregators.rule import MIXED_RANKS
from fedse.seeds import generator
from fedse.types import ServerState


class Flora(ResidualRule):
    """The clients' products stacked as frozen ranks, and a fresh pair for the next round: exact."""

    also_promised = frozenset({MIXED_RANKS})

    def split(
        self, ups: Sequence[Matrix], downs: Sequence[Matrix], name: str, state: ServerState
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        rank, inputs = state.adapter.tensors[name].shape
        bound = 1.0 / np.sqrt(inputs)
        present = hashlib.sha256(
            np.ascontiguousarray(state.adapter.tensors[name], dtype=np.float32).tobytes()
        ).hexdigest()
        fresh = generator("flora", state.round + 1, name, present).uniform(-bound, bound, (rank, inputs))
        return np.zeros((len(ups[0]), rank)), fresh, *side_by_side(ups, downs)
