"""Deference: each client begins a round with the adapter that does best on its own training tasks.

begin = the broadcast adapter, or the one that a client sent last, whichever solves most trial tasks (see `trial.py`)

Of equal ones it takes the broadcast adapter, then its own one, then the first by name. What the average of all holds back is
not lost to those who have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedse.mixes.trial import SHARED, TrialMix


class DeferToBest(TrialMix):
    """The best of the broadcast adapter, the client's own and the others', as measured by the client."""

    def weights(self, success: Mapping[str, float]) -> Mapping[str, float]:
        order = [name for name in (SHARED, self.client, *sorted(success)) if name in success]
        return {max(order, key=lambda name: success[name]): 1.0}
