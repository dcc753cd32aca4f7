"""Tokens that take entropy away: those that are likely already and are made likelier still (arXiv 2505.22617).

    c_t = (A_t - mean A) (log p_t - mean log p)        over the agent's tokens of a batch

A policy's entropy falls by the mean of c. A few tokens have most of it: `clip_cov` leaves a random few with c between 1 and
5 out of a step, `kl_cov` holds those with the largest c to the probability with which they were drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedse.objectives.objective import Scored, Values

Mask = npt.NDArray[np.bool_]
_BETWEEN = (1.0, 5.0)
SHARE = {"clip_cov": 2e-4, "kl_cov": 2e-3}
"""The paper's, for models of 7 billion parameters."""


@dataclass(frozen=True)
class Covariance:
    way: Literal["clip_cov", "kl_cov"]
    share: float
    """Of the tokens of a batch, at least one."""

    def chosen(self, batch: Sequence[Scored], counts: Sequence[Mask]) -> list[Mask]:
        """Tokens that are left out, or held. `counts`: those whose ratio is within its bounds."""
        lengths = [len(item.now) for item in batch]
        covariance = self.of(batch)
        number = max(1, int(self.share * covariance.size))
        found = np.zeros(covariance.size, dtype=np.bool_)
        if self.way == "kl_cov":
            found[np.argsort(-covariance, kind="stable")[:number]] = True
        else:
            low, high = _BETWEEN
            candidates = np.flatnonzero((covariance > low) & (covariance < high) & np.concatenate(counts))
            # Seeded by what is in the batch, so that a step that is repeated leaves out the same.
            random = np.random.default_rng([int(item.example.ids.sum()) for item in batch])
            found[random.permutation(candidates)[:number]] = True
        return np.split(found, np.cumsum(lengths)[:-1])

    @staticmethod
    def of(batch: Sequence[Scored]) -> Values:
        """Of each token, one example after another."""
        likely = np.concatenate([item.now for item in batch])
        credit = np.concatenate([item.credits for item in batch])
        return np.asarray((credit - credit.mean()) * (likely - likely.mean()), dtype=np.float64)
