"""What rounds of noisy steps tell about one trajectory at most, by Google's dp-accounting."""

from __future__ import annotations

import math
from functools import lru_cache

from fedse.errors import MissingExtra


@lru_cache(maxsize=4096)
def epsilon(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Of so many steps, each a sum over trajectories that were drawn independently, with noise of `noise_multiplier` times
    what one of them can add. Data sets are neighbours if one trajectory is added or taken away. An upper bound, by privacy
    loss distributions."""
    try:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
        from dp_accounting.pld import PLDAccountant
    except ImportError as error:
        raise MissingExtra("learner: dp_imitation", "dp-accounting", "dp") from error
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_multiplier)), steps)
    return float(accountant.get_epsilon(delta))


def enough_noise(sampling_rate: float, steps: int, delta: float, budget: float) -> float:
    """A multiplier with which so many steps keep within a budget. By moments of whole orders, a coarser bound that is quick
    to search: a little less may do."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    def spent(multiplier: float) -> float:
        accountant = RdpAccountant(orders=[*range(2, 33), 40, 64, 128, 256])
        step = PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(multiplier))
        return float(accountant.compose(SelfComposedDpEvent(step, steps)).get_epsilon(delta))

    low, high = 0.0, 0.5
    while spent(high) > budget:
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > budget else (low, middle)
    return math.ceil(100 * high) / 100
