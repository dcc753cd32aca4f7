"""What an attempt is worth to sets of attempts: they shall succeed, and not all in the same way (arXiv 2509.25424).

    f(set) = mean reward of its attempts * share of them that differ
    A_i    = mean of f over the sets with attempt i - mean of f over all sets

The paper branches episodes at states in between; here sets are drawn from whole attempts at one task, all there are.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from fedse.errors import BadInput
from fedse.objectives.groups import Group
from fedse.types import Trajectory

_MOST_SETS = 20_000


def set_advantages(groups: list[Group], size: int) -> list[tuple[Trajectory, float]]:
    """Of all attempts in groups that are large enough and have a difference."""
    found: list[tuple[Trajectory, float]] = []
    for group in groups:
        if len(group) < size:
            continue
        if (number := comb(len(group), size)) > _MOST_SETS:
            raise BadInput(
                f"learner.set_size: {len(group)} attempts have {number:,} sets of {size}, and {_MOST_SETS:,} are the most: "
                "choose a smaller `set_size`, or fewer `exploration.attempts`."
            )
        sets = list(combinations(range(len(group)), size))
        # Less than nothing would be worth more the fewer differ.
        lowest = min(0.0, *(item.reward for item in group))
        worth = np.array([_worth([group[number] for number in chosen], lowest) for chosen in sets])
        within = np.array([[number in chosen for number in range(len(group))] for chosen in sets])
        own = (worth[:, None] * within).sum(axis=0) / within.sum(axis=0) - worth.mean()
        if np.ptp(own) > 1e-12:
            found += zip(group, own.tolist(), strict=True)
    return found


def _worth(attempts: list[Trajectory], lowest: float) -> float:
    """A set of one attempt differs by nothing: with `set_size: 1` this is the mean reward."""
    kinds = {tuple(step.action for step in item.steps) for item in attempts}
    return float(np.mean([item.reward - lowest for item in attempts])) * len(kinds) / len(attempts)
