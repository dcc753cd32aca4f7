"""FedYogi: FedAdam with a second moment that grows and shrinks slowly (Reddi and others, arXiv 2003.00295).

    v = v - (1 - beta2) * change^2 * sign(v - change^2)            everything else as in `fedadam`

Cost: as `fedadam`.
Helps: where rounds with large changes are rare: Adam soon forgets one and then steps too far, Yogi does not.
"""

from __future__ import annotations

import numpy as np

from fedse.aggregators.fedadam import FedAdam
from fedse.aggregators.rule import ONLY_THE_SUM
from fedse.aggregators.server_optimiser import Change


class FedYogi(FedAdam):
    """Yogi on the mean change of the adapters."""

    promises = frozenset({ONLY_THE_SUM})

    def second(self, before: Change, square: Change) -> Change:
        return before - (1 - self.options.beta2) * square * np.sign(before - square)
