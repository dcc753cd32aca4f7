"""Weight by gain: each client begins a round with a mean of those adapters that do better for it than the broadcast one.

    gain_j   = max(0, success_j - success of the broadcast adapter)      on the client's own training tasks (see `trial.py`)
    weight_j = gain_j / sum of all gains

Where nobody does better it is the broadcast adapter, where one alone does it is that one.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedse.mixes.trial import SHARED, TrialMix


class WeightByGain(TrialMix):
    """A mean of the adapters that do better than the broadcast one, by how much better they do."""

    def weights(self, success: Mapping[str, float]) -> Mapping[str, float]:
        gains = {name: max(0.0, share - success[SHARED]) for name, share in success.items()}
        total = sum(gains.values())
        return {name: gain / total for name, gain in gains.items()} if total else {SHARED: 1.0}
