"""FedEx-LoRA: the means of A and B, and exactly what they miss as frozen ranks (Singhal and others, arXiv 2410.09432).

    next A = mean(A),  next B = mean(B)
    residual += mean_k B_k A_k - mean(B) mean(A) = (1 / K) sum_k (B_k - mean(B)) (A_k - mean(A))

The paper adds the residual to the base model; here it is broadcast as further ranks of the adapter (see `residual.py`).
Cost: upload as `mean`. Download and work at the client grow with the residual: by at most (K - 1) r ranks each round, until
it has as many as the smaller side of a module; the option `rank` bounds it. For a module with d outputs, k inputs and a
residual of R ranks the server needs about 4 (d + k) (R + K r)^2 + 20 (R + K r)^3 operations and holds the factors of one
module of all clients and the residual.
Helps: where clients drift far apart in long rounds, so that `product_gap` is large, and traffic downwards is cheap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.aggregators.factors import Matrix, side_by_side
from fedse.aggregators.residual import ResidualRule
from fedse.aggregators.rule import EQUAL_UPDATES
from fedse.types import ServerState


class FedExLora(ResidualRule):
    """The means of A and B, and what they miss of the mean of products as frozen ranks: exact."""

    also_promised = frozenset({EQUAL_UPDATES})

    def split(
        self, ups: Sequence[Matrix], downs: Sequence[Matrix], name: str, state: ServerState
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        del name, state  # The means say it all.
        up, down = np.mean(ups, axis=0), np.mean(downs, axis=0)
        return up, down, *side_by_side([own - up for own in ups], [own - down for own in downs])
