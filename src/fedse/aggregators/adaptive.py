"""Weights from each client's gain over its own history (the idea of FGRPO, arXiv 2606.03094, for success rates).

    s_k = successes / (explored - errors) of client k in this round
    g_k = s_k - h_k                                        0 for a client without a history
    next = sum_k w_k adapter_k / sum_k w_k,  w_k = exp(sharpness * g_k)
    h_k = memory * h_k + (1 - memory) * s_k                s_k in its first round

A client is compared with itself only, so an easy world weighs no more than a hard one, unlike with `success_weighted`.
Cost: as `mean`, and one remembered number for each client that ever sent an update.
Helps: where some clients improve while others stand still or get worse: those that improve lead. A negative `sharpness`
turns it round, in favour of those that fall behind. Success rates of a few episodes are noisy, and so are the weights then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from fedse.aggregators.mean import Mean, weighted_mean
from fedse.aggregators.rule import Result, count
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState

_HISTORY = "history."


class AdaptiveOptions(PluginOptions):
    """How strongly gains count, and how far back a client's history reaches."""

    sharpness: float = 4.0
    """A client that gained 1 / sharpness weighs e times one that gained nothing; 0 is the plain mean."""
    memory: float = Field(default=0.5, ge=0, lt=1)
    """Share of a client's history that is kept in each round."""


class Adaptive(Mean):
    """The mean weighted by how much each client's success rate rose above its own history."""

    Options = AdaptiveOptions
    needs_counts = frozenset({"explored", "errors", "successes"})

    def __init__(self, **options: float) -> None:
        self.options = AdaptiveOptions.model_validate(options)

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        histories, gains = dict(state.memory), np.zeros(len(updates))
        for index, update in enumerate(updates):
            ended = count(update, "explored") - count(update, "errors")
            if ended <= 0:
                continue  # Nothing was seen, so nothing is gained or lost.
            name, rate = f"{_HISTORY}{update.client}", count(update, "successes") / ended
            before = float(histories[name][0]) if name in histories else rate
            gains[index] = rate - before
            after = self.options.memory * before + (1 - self.options.memory) * rate
            histories[name] = np.array([after], dtype=np.float32)
        # The same factor for all weights changes nothing and keeps them finite.
        exponents = self.options.sharpness * gains
        weights = np.exp(exponents - exponents.max())
        mean = weighted_mean(updates, weights).astype(np.float32)
        largest = float(weights.max() / weights.sum())
        return self.following(state, mean, histories), {"largest_weight": largest, "mean_gain": float(gains.mean())}
