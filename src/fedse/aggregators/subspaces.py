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
    # In single precision the squares would hide directions behind rounding errors.
    side_by_side = np.hstack(ups).astype(np.float64)
    # Matrices as narrow as a rank say all that is asked of tall ones.
    products = side_by_side.T @ side_by_side
    turns, row = list[Matrix](), 0
    for up in ups:
        behind = row + up.shape[1]
        turn = np.zeros((len(products), up.shape[1]))
        turn[row:behind] = _orthonormal(products[row:behind, row:behind])
        turns.append(turn[:, turn.any(axis=0)])
        row = behind
    ranks = np.array([turn.shape[1] for turn in turns])
    # Nothing is written by nobody: those who write nothing are alike, and unlike all others.
    larger = np.maximum(ranks[:, None], ranks[None, :])
    bases = np.hstack(turns)
    overlaps = (bases.T @ products @ bases) ** 2
    owner = np.repeat(np.eye(len(ups)), ranks, axis=1)
    shares = np.divide(owner @ overlaps @ owner.T, larger, out=np.ones(larger.shape), where=larger > 0)
    distances: Matrix = np.clip(1.0 - (shares + shares.T) / 2, 0.0, 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _orthonormal(gram: Matrix) -> Matrix:
    """What turns the columns with these inner products into orthonormal ones; zeros where there is no further direction."""
    squares, turns = np.linalg.eigh(gram)
    there = squares > _NOTHING**2 * max(squares.max(initial=0.0), 1e-60)
    return np.asarray(np.where(there, turns / np.sqrt(np.where(there, squares, 1.0)), 0.0))
