"""How well a score tells members from non-members: area under the ROC curve, and true positives at few false ones.

    AUC        chance that a member has a higher score than a non-member, ties counted half
    TPR at q   largest share of members above a threshold that at most a share q of the non-members is above

An AUC says how an attack does on average; the rate at 1 % false positives says whether it is sure of anybody at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedse.seeds import generator

RESAMPLES = 2000
FALSE_POSITIVES = 0.01

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """With 95 % bootstrap intervals, members and non-members drawn again, each among themselves."""

    auc: float
    auc_interval: tuple[float, float]
    tpr: float
    """At `FALSE_POSITIVES`."""
    tpr_interval: tuple[float, float]


def rates(members: Sequence[float], others: Sequence[float]) -> Rates:
    """Of scores that are higher the surer an attacker is of a member."""
    if not members or not others:
        raise ValueError("a rate needs members and non-members")
    inside, outside = _by_value(members, others)
    (auc,), (tpr,) = _auc(inside[None], outside[None]), _tpr(inside[None], outside[None])
    random = generator("bootstrap of an audit")
    again = [
        random.multinomial(int(counts.sum()), counts / counts.sum(), RESAMPLES).astype(np.float64)
        for counts in (inside, outside)
    ]
    return Rates(float(auc), _middle(_auc(*again)), float(tpr), _middle(_tpr(*again)))


def _by_value(members: Sequence[float], others: Sequence[float]) -> tuple[Counts, Counts]:
    """How often each value occurs among both, in rising order of the values."""
    values, places = np.unique(np.array([*members, *others]), return_inverse=True)
    if not np.isfinite(values).all():
        raise ValueError("a score has to be a finite number")
    split = np.split(places, [len(members)])
    inside, outside = (np.bincount(part, minlength=len(values)).astype(np.float64) for part in split)
    return inside, outside


def _auc(inside: Counts, outside: Counts) -> Counts:
    """Of each row."""
    below = outside.cumsum(axis=1) - outside / 2
    found: Counts = (inside * below).sum(axis=1) / (inside.sum(axis=1) * outside.sum(axis=1))
    return found


def _tpr(inside: Counts, outside: Counts) -> Counts:
    """Of each row. A threshold above all values has no false positives, and no true ones."""
    caught, wrong = (counts[:, ::-1].cumsum(axis=1) / counts.sum(axis=1, keepdims=True) for counts in (inside, outside))
    allowed = wrong <= FALSE_POSITIVES + 1e-12
    found: Counts = np.where(allowed, caught, 0.0).max(axis=1)
    return found


def _middle(values: Counts) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
