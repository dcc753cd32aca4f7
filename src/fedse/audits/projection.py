"""ProjRes (arXiv 2604.21197) for LoRA: what a client changed in A lies in the span of what went into the layer.

    dA = - sum over steps and tokens of  rate * (B^T d) x^T        x: what goes into the layer, d: gradient of what comes out
    score(tau) = mean over matrices of  sum_t |P x_t|^2 / sum_t |x_t|^2        P: onto the rows of dA

The fewer trajectories are behind an update, the more of a member's x lies in its few rows. Of the last layer alone, where
most of dA comes from the tokens of the agent; further down every token of a conversation has its part in it. Adam scales
every value of a step by itself, so that the span holds only nearly. While B is zero, A does not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fedse.adapters.plan import factor
from fedse.audits.layer_inputs import Inputs, Matrix
from fedse.types import Adapter

_SMALLEST = 1e-5
"""Share of the largest singular value below which a direction is a rounding."""


def directions(before: Adapter, after: Adapter) -> dict[str, Matrix]:
    """An orthonormal basis of the rows of each dA of the last layer that is not zero."""
    factors = [name for name in before.tensors if factor(name) == "A"]
    last = max(map(_layer, factors), default=0)
    changes = {
        name: after.tensors[name].astype(np.float64) - before.tensors[name] for name in factors if _layer(name) == last
    }
    return {name: _basis(change) for name, change in changes.items() if change.any()}


def _layer(name: str) -> int:
    """
    >>> _layer("model.layers.11.up_proj.lora_A.weight")
    11
    """
    found = re.search(r"\.(\d+)\.", name)
    return int(found.group(1)) if found else 0


def _basis(change: Matrix) -> Matrix:
    _, sizes, rows = np.linalg.svd(change, full_matrices=False)
    found: Matrix = rows[sizes > _SMALLEST * sizes[0]]
    return found


def caught(inputs: Inputs, bases: Mapping[str, Matrix]) -> float:
    """The score: how much of a trajectory's inputs lies in the rows of an update, from 0 to 1."""
    shares = [np.square(inputs[name] @ rows.T).sum() / np.square(inputs[name]).sum() for name, rows in bases.items()]
    return float(np.mean(shares))
