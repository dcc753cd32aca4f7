"""The test of Cochran, Mantel and Haenszel: whether two methods differ, when of each run only the counts are left.

Run by run and world by world it compares successes among tasks, as if the tasks of the two had nothing in common. They are
the same tasks, and what is hard for one is hard for the other, so this finds less than the test of
`fedse compare`, over tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

Count = tuple[float, float]
"""Successes, and of how many tasks."""


def mantel_haenszel(ours: Sequence[Count], theirs: Sequence[Count]) -> float:
    """Two-sided p-value of equal chances in every stratum, without a correction for continuity.

    >>> round(mantel_haenszel([(60, 200)], [(40, 200)]), 3), mantel_haenszel([(0, 9)], [(0, 9)])
    (0.021, 1.0)
    """
    apart = variance = 0.0
    for (won, tasks), (others, other_tasks) in zip(ours, theirs, strict=True):
        both, solved = tasks + other_tasks, won + others
        apart += won - tasks * solved / both
        variance += tasks * other_tasks * solved * (both - solved) / (both**2 * (both - 1))
    return erfc(abs(apart) / sqrt(2 * variance)) if variance else 1.0
