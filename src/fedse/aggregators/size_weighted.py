"""The mean of the adapters weighted by how much each client learned from: FedIT's rule (arXiv 2305.05644).

    next = sum over clients k of n_k * adapter_k / sum of n_k       (n_k: trajectories client k learned from)

Cost: that of the plain mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.aggregators.mean import Mean
from fedse.protocols import StoredUpdate


class SizeWeighted(Mean):
    """Clients with more data weigh more."""

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        return np.array([float(update.counts["learned_from"]) for update in updates])
