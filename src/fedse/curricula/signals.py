"""How much there is to learn from a task, by how often it was solved: one formula each, with the values of its paper.

p is the share of successes, k of n tries. Papers that have a model propose tasks add terms about the proposal (its form, how
much it is like others, how many tools its solution calls); tasks here are the world's own, so those terms are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import NamedTuple, Self

from fedse.types import Attempt, Outcome


class Tried(NamedTuple):
    """What came of some attempts that ended in success or failure."""

    successes: int
    rewards: tuple[float, ...]

    @classmethod
    def of(cls, attempts: Iterable[Attempt]) -> Self:
        """Errors are the world's and say nothing about a task."""
        finished = [item for item in attempts if item.outcome is not Outcome.ERROR]
        return cls(sum(item.outcome is Outcome.SUCCESS for item in finished), tuple(item.reward for item in finished))

    @property
    def tries(self) -> int:
        return len(self.rewards)

    @property
    def share(self) -> float:
        return self.successes / self.tries


Signal = Callable[[Tried], float]
"""Of at least one try."""


def learnability(tried: Tried) -> float:
    """p(1 - p): the variance of a success."""
    return tried.share * (1 - tried.share)


def azr(tried: Tried) -> float:
    """Absolute Zero: 1 - p, and nothing for what is never solved."""
    return 1 - tried.share if tried.successes else 0.0


def agent0(tried: Tried) -> float:
    """Agent0: min(p, 1 - p) of the tasks that it trains on, 0.3 <= p <= 0.8."""
    return min(tried.share, 1 - tried.share) if 0.3 <= tried.share <= 0.8 else 0.0


def dr_zero(tried: Tried) -> float:
    """Dr. Zero: (n - k) / (n - 1) for 0 < k < n. A single success is worth most."""
    return (tried.tries - tried.successes) / (tried.tries - 1) if 0 < tried.successes < tried.tries else 0.0


def ttcs(tried: Tried) -> float:
    """TTCS: (4p(1 - p))^1.2 of the tasks that it trains on, 0.25 <= p <= 0.75."""
    return float((4 * learnability(tried)) ** 1.2) if 0.25 <= tried.share <= 0.75 else 0.0


def ssr(tried: Tried) -> float:
    """SSR: 1 - 1.8p for 0 < p < 1, and -0.8 for what is never or always solved."""
    return 1 - 1.8 * tried.share if 0 < tried.successes < tried.tries else -0.8


def webrl(tried: Tried) -> float:
    """WebRL: 1 within the band of what it trains on, 0.05 <= p <= 0.75, where its critic's value stands for p."""
    return 1.0 if 0.05 <= tried.share <= 0.75 else 0.0


def exit_variance(tried: Tried) -> float:
    """ExIt: the variance of the rewards."""
    mean = fmean(tried.rewards)
    return fmean((reward - mean) ** 2 for reward in tried.rewards)


def eva_gap(tried: Tried) -> float:
    """eva: the best reward less the worst."""
    return max(tried.rewards) - min(tried.rewards)


def sec_advantage(tried: Tried) -> float:
    """SEC: mean |r - mean(r)| / std(r); 2 sqrt(p(1 - p)) where rewards are 0 and 1."""
    if eva_gap(tried) == 0:
        return 0.0
    mean = fmean(tried.rewards)
    return float(fmean(abs(reward - mean) for reward in tried.rewards) / exit_variance(tried) ** 0.5)


SIGNALS: Mapping[str, Signal] = {
    signal.__name__: signal
    for signal in (learnability, azr, agent0, dr_zero, ttcs, ssr, webrl, exit_variance, eva_gap, sec_advantage)
}
