"""How far apart the directions are in which clients' adapters write (HiLoRA's distance, CVPR 2026).

    d_ij = 1 - |U_i^T U_j|^2 / r            U_i: orthonormal columns that span those of B_i; mean over the modules

0: the same directions, 1: none in common; random ones of rank r in m outputs have about 1 - r / m. It does not depend on how
the two factors are turned against each other, nor on the signs and lengths of what was learned: sites of one world may write
opposite things in the same place, which cosines take for disagreement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedse.aggregators.factors import Matrix

_NOTHING = 1e-6
"""Directions with less than this share of the largest singular value are rounding errors of float32."""


class MeanDistances:
    """Between all clients, over modules that come one after another."""

    def __init__(self) -> None:
        self._total = np.zeros((0, 0))
        self._number = 0

    def add(self, ups: Sequence[Matrix]) -> None:
        """B of each client for one module."""
        distances = _in_module(ups)
        self._total = self._total + distances if self._number else distances
        self._number += 1

    @property
    def mean(self) -> Matrix | None:
        """None without any module."""
        return self._total / self._number if self._number else None


def subspace_distances(modules: Iterable[Sequence[Matrix]]) -> Matrix | None:
    """Between all clients, from B of each client for one module after another; None without any module."""
    found = MeanDistances()
    for ups in modules:
        found.add(ups)
    return found.mean


def _in_module(ups: Sequence[Matrix]) -> Matrix:
    bases = [_basis(up) for up in ups]
    ranks = np.array([basis.shape[1] for basis in bases])
    # Nothing is written by nobody: those who write nothing are alike, and unlike all others.
    larger = np.maximum(ranks[:, None], ranks[None, :])
    side_by_side = np.hstack(bases)
    overlaps = (side_by_side.T @ side_by_side) ** 2
    owner = np.repeat(np.eye(len(ups)), ranks, axis=1)
    shares = np.divide(owner @ overlaps @ owner.T, larger, out=np.ones(larger.shape), where=larger > 0)
    distances: Matrix = np.clip(1.0 - shares, 0.0, 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _basis(up: Matrix) -> Matrix:
    lefts, values, _ = np.linalg.svd(up, full_matrices=False)
    return np.asarray(lefts[:, values > _NOTHING * max(values.max(initial=0.0), 1e-30)])
