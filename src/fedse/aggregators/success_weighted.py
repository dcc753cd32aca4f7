"""The mean weighted by the successes of the round: an ablation of the paper (Fed-SE, arXiv 2512.08870).

    next = sum_k s_k adapter_k / sum_k s_k          s_k = successful explorations of client k in this round

A client without a success in the round has no weight; when nobody has one, all weigh the same.
Cost: as `mean`.
Helps: where success tells how good an update is. In the paper it did worse than the plain mean (59.8 against 66.1 %),
because easy worlds succeed more often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import count
from fedse.protocols import StoredUpdate


class SuccessWeighted(Mean):
    """The mean weighted by each client's successes in the round (an ablation of the paper)."""

    needs_counts = frozenset({"successes"})

    def weights(self, updates: Sequence[StoredUpdate]) -> npt.NDArray[np.float64]:
        successes = np.array([float(count(update, "successes")) for update in updates])
        return successes if successes.sum() > 0 else np.ones(len(updates))
