"""The mean weighted by what each client learned from: FedAvg's rule (arXiv 1602.05629), and FedIT's (arXiv 2305.05644).

    next = sum_k n_k adapter_k / sum_k n_k          n_k = trajectories that client k learned from in this round

Cost: as `mean`.
Helps: where clients hold samples of one distribution, so that a larger buffer is a better estimate. Where each client has a
world of its own, it hands the adapter to whoever collects fastest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import count
from fedse.protocols import StoredUpdate


class SizeWeighted(Mean):
    """The mean weighted by the trajectories each client learned from (FedAvg, FedIT)."""

    needs_counts = frozenset({"learned_from"})

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        sizes = np.array([float(count(update, "learned_from")) for update in updates])
        return sizes if sizes.sum() > 0 else np.ones(len(updates))
