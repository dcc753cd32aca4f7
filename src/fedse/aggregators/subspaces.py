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
    widest = max(1, *(up.shape[1] for up in ups))
    # In single precision the squares would hide directions behind rounding errors.
    side_by_side = np.zeros((len(ups[0]), len(ups), widest))
    for client, up in enumerate(ups):
        side_by_side[:, client, : up.shape[1]] = up
    flat = side_by_side.reshape(len(side_by_side), -1)
    # Matrices as narrow as a rank say all that is asked of tall ones: clients x clients x ranks x ranks.
    products = (flat.T @ flat).reshape(len(ups), widest, len(ups), widest).transpose(0, 2, 1, 3)
    own = np.arange(len(ups))
    turns = _orthonormal(products[own, own])
    ranks = turns.any(axis=1).sum(axis=1)
    # Nothing is written by nobody: those who write nothing are alike, and unlike all others.
    larger = np.maximum(ranks[:, None], ranks[None, :])
    overlaps = ((turns.transpose(0, 2, 1)[:, None] @ products @ turns[None, :]) ** 2).sum(axis=(2, 3))
    shares = np.divide(overlaps, larger, out=np.ones(larger.shape), where=larger > 0)
    distances: Matrix = np.clip(1.0 - (shares + shares.T) / 2, 0.0, 1.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def _orthonormal(grams: Matrix) -> Matrix:
    """What turns the columns with these inner products into orthonormal ones; zeros where there is no further direction."""
    squares, turns = np.linalg.eigh(grams)
    there = squares > _NOTHING**2 * np.maximum(squares.max(axis=1, keepdims=True), 1e-60)
    scales = np.where(there, 1.0 / np.sqrt(np.where(there, squares, 1.0)), 0.0)
    return np.asarray(turns * scales[:, None, :])
