"""A lower bound on epsilon from a single run (arXiv 2305.08846): too many right guesses cannot be luck.

m canaries are each planted by a fair coin. Somebody guesses r of them, those with the highest scores "planted" and those
with the lowest "not planted", and v guesses are right. If what they saw was (epsilon, delta)-differentially private, then
with q = e^epsilon / (1 + e^epsilon) so many come out right with a chance of at most

    p = P[Bin(r, q) >= v]  +  2 m delta * max over i = 1 .. v of ( P[Bin(r, q) >= v - i] - P[Bin(r, q) >= v] ) / i

and every epsilon with a small p is refuted. How many guesses are best is not known before: several numbers are tried, and
share what may go wrong among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedse.seeds import generator

SIGNIFICANCE = 0.05
GUESSED = (1.0, 0.5, 0.25, 0.1)
"""Shares of the canaries that are guessed."""
_LARGEST = 50.0


class Bound(NamedTuple):
    epsilon: float
    """At least so much, with a confidence of 95 %; 0 says nothing."""
    guesses: int
    right: int


def lower_bound(scores: Sequence[float], planted: Sequence[bool], delta: float) -> Bound:
    """Of scores that are higher the surer somebody is that a canary was planted."""
    # Equal scores must not be told apart by the order in which canaries are listed.
    shuffled = generator("ties of an audit").permutation(len(scores))
    order = shuffled[np.argsort(np.array(scores)[shuffled], kind="stable")]
    truth = np.array(planted, dtype=bool)[order]
    found = []
    for share in GUESSED:
        half = max(1, int(share * len(scores)) // 2)
        right = int(truth[-half:].sum() + (~truth[:half]).sum())
        least = smallest_epsilon(len(scores), 2 * half, right, delta, SIGNIFICANCE / len(GUESSED))
        found.append(Bound(least, 2 * half, right))
    return max(found)


def smallest_epsilon(canaries: int, guesses: int, right: int, delta: float, significance: float) -> float:
    """The largest epsilon that is refuted; 0 where none is."""
    low, high = 0.0, _LARGEST
    if p_value(canaries, guesses, right, low, delta) > significance:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if p_value(canaries, guesses, right, middle, delta) <= significance else (low, middle)
        )
    return low


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The largest chance of so many right guesses."""
    at_least = _tails(guesses, epsilon)
    luck = at_least[right]
    more = max(((at_least[right - i] - luck) / i for i in range(1, right + 1)), default=0.0)
    return float(min(1.0, luck + 2 * canaries * delta * more))


def _tails(guesses: int, epsilon: float) -> npt.NDArray[np.float64]:
    """P[Bin(guesses, q) >= k] for k = 0 .. guesses + 1."""
    log_right, log_wrong = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
    logs = [
        math.lgamma(guesses + 1)
        - math.lgamma(k + 1)
        - math.lgamma(guesses - k + 1)
        + k * log_right
        + (guesses - k) * log_wrong
        for k in range(guesses + 1)
    ]
    tails = np.cumsum(np.exp(logs)[::-1])[::-1]
    found: npt.NDArray[np.float64] = np.minimum(1.0, np.append(tails, 0.0))
    return found
