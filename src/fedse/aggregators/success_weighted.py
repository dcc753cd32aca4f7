"""The mean of the adapters weighted by the successes each client found in the round: the paper's ablation.

    next = sum over clients k of s_k * adapter_k / sum of s_k       (s_k: successes of client k while exploring)

Cost: that of the plain mean. A round in which nobody found a success is averaged plainly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.aggregators.mean import Mean
from fedse.protocols import StoredUpdate


class SuccessWeighted(Mean):
    """Clients with more successes weigh more; in the paper this did worse than the plain mean."""

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        successes = np.array([float(update.counts["successes"]) for update in updates])
        return successes if successes.any() else np.ones(len(updates))
