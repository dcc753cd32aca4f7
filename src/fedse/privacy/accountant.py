"""What rounds of noisy steps tell about one trajectory, or about one site, at most, by Google's dp-accounting."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from fedse.errors import MissingExtra

_ORDERS = [*range(2, 33), 40, 64, 128, 256]
_WHAT = "noise for privacy"
_LITTLE_NOISE = 0.3
"""Below this the finer bound takes minutes and gigabytes, and neither protects anybody."""


@lru_cache(maxsize=4096)
def epsilon(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Of so many steps, each a sum over trajectories that were drawn independently, with noise of `noise_multiplier` times
    what one of them can add. Data sets are neighbours if one trajectory is added or taken away; the same of sites. An upper
    bound, by privacy loss distributions, and by moments where there is little noise; exact where all are drawn."""
    if sampling_rate == 1:
        return _of_one_gaussian(noise_multiplier / math.sqrt(steps), delta)
    if noise_multiplier < _LITTLE_NOISE:
        return _by_moments(noise_multiplier, sampling_rate, steps, delta)
    step = _step(noise_multiplier, sampling_rate)
    from dp_accounting.pld import PLDAccountant

    return float(PLDAccountant().compose(step, steps).get_epsilon(delta))


def _of_one_gaussian(noise_multiplier: float, delta: float) -> float:
    """Steps in which all take part are together one step with less noise."""
    try:
        from dp_accounting import get_epsilon_gaussian
    except ImportError as error:
        raise MissingExtra(_WHAT, "dp-accounting", "dp") from error
    return float(get_epsilon_gaussian(noise_multiplier, delta))


def enough_noise(sampling_rate: float, steps: int, delta: float, budget: float) -> float:
    """A multiplier with which so many steps keep within a budget. By moments, which are quick to search: a little less may
    do."""
    low, high = 0.0, 0.5
    while _by_moments(high, sampling_rate, steps, delta) > budget:
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _by_moments(middle, sampling_rate, steps, delta) > budget else (low, middle)
    return math.ceil(100 * high) / 100


def _by_moments(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """A coarser bound."""
    step = _step(noise_multiplier, sampling_rate)
    from dp_accounting.rdp import RdpAccountant

    return float(RdpAccountant(orders=_ORDERS).compose(step, steps).get_epsilon(delta))


def _step(noise_multiplier: float, sampling_rate: float) -> Any:
    try:
        from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    except ImportError as error:
        raise MissingExtra(_WHAT, "dp-accounting", "dp") from error
    return PoissonSampledDpEvent(sampling_rate, GaussianDpEvent(noise_multiplier))
