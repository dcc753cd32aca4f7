"""Groups of clients that are closer to each other than to the rest, from their distances alone.

Average linkage: the two groups with the smallest mean distance become one, until all are in one. Of the stages on the way
the one with the largest silhouette is taken (Rousseeuw 1987): for each client with company, how much nearer its own group is
than the next one, as a share of the farther of the two; a client by itself has 0. Such a share needs no scale, which matters
because adapters of different worlds are nearly as far apart as random ones and those of one world not much less.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fedse.aggregators.factors import Matrix

Groups = list[list[int]]


def clusters(distances: Matrix, min_silhouette: float) -> Groups:
    """The groups, each in order; everybody in one where no division has a silhouette of at least `min_silhouette`."""
    together = [list(range(len(distances)))]
    rated = [(silhouette(distances, groups), groups) for groups in _stages(distances)]
    best, groups = max(rated, key=lambda each: each[0], default=(0.0, together))
    return groups if best >= min_silhouette else together


def _stages(distances: Matrix) -> list[Groups]:
    """All divisions on the way that have company for somebody, and more than one group."""
    groups: Groups = [[number] for number in range(len(distances))]
    found = []
    while len(groups) > 2:
        # Of several pairs at the same distance the first, so that everybody who looks sees the same.
        first, second = min(
            combinations(range(len(groups)), 2),
            key=lambda pair: float(distances[np.ix_(groups[pair[0]], groups[pair[1]])].mean()),
        )
        joined = sorted(groups[first] + groups[second])
        groups = sorted([joined, *(group for place, group in enumerate(groups) if place not in (first, second))])
        found.append(groups)
    return found


def silhouette(distances: Matrix, groups: Groups) -> float:
    """The mean over all clients; needs two groups."""
    values = []
    for group in groups:
        for member in group:
            company = [other for other in group if other != member]
            if not company:
                values.append(0.0)
                continue
            own = float(distances[member, company].mean())
            other = min(float(distances[member, rest].mean()) for rest in groups if rest is not group)
            values.append((other - own) / max(other, own, 1e-30))
    return float(np.mean(values))
