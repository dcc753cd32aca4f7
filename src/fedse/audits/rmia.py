"""RMIA (arXiv 2312.03262): how much likelier has a trajectory become than it is to models that never learned from it?

    p(x)  = 1/2 * ((1 + a) * mean over the references of p_ref(x) + 1 - a)      what any model might think of it
    r(x)  = p(x | adapter) / p(x),    p = exp(- loss), the geometric mean of the probabilities of the agent's tokens
    score = share of a population of others z with r(x) / r(z) >= gamma

The score rises with r(x) whatever gamma and the others are. So r(x) itself puts candidates in the same order, with the same
AUC and the same true positives at any false-positive rate, and without the ties of a small population.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OFFLINE_A = 0.3
"""How far references that never learned from x stand for all. The paper fits it to each data set, from 0.2 to 1."""


def ratios(own: Sequence[float], references: Sequence[Sequence[float]]) -> list[float]:
    """r(x) of each trajectory, from its loss under an adapter and under those of the references."""
    outside = np.exp(-np.array(references, dtype=np.float64)).mean(axis=0)
    expected = ((1 + OFFLINE_A) * outside + 1 - OFFLINE_A) / 2
    found: list[float] = (np.exp(-np.array(own, dtype=np.float64)) / expected).tolist()
    return found
