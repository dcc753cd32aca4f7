"""Losses whose targets are what another adapter, the teacher, would say in the place of each token.

q is the teacher's distribution over its likeliest tokens, which sum to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedse.networks.training.soft_targets import LikelyTokens, SoftTargets
from fedse.objectives.cases import CreditedExample
from fedse.objectives.objective import Objective, Scored, Values, Weighed
from fedse.types import Adapter


class Teacher(NamedTuple):
    """An adapter of the lesson's kind, and how many of the likeliest tokens it tells in each place."""

    adapter: Adapter
    top_k: int


@dataclass(frozen=True)
class SoftLabels(Objective):
    """The mean over tokens of -(1 - share) log p(token) - share * sum of q log p."""

    share: float

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        del example, known  # To none.
        return False

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        tokens = sum(len(item.now) for item in batch)
        weights = [np.full(len(item.now), (1 - self.share) / tokens) for item in batch]
        loss = -sum(float(own @ item.now) for own, item in zip(weights, batch, strict=True))
        return Weighed(weights, loss, soft=[_targets(item, self.share / tokens) for item in batch])


@dataclass(frozen=True)
class Divergence(Objective):
    """The mean of KL(q || p) over tokens that are taught; beside it, the mean of -log p over replayed ones, by their
    credit."""

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        del example, known  # To none.
        return False

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        taught = sum(len(item.now) for item in batch if item.taught is not None)
        replayed = sum(len(item.now) for item in batch if item.taught is None)
        weights: list[Values] = []
        loss = 0.0
        for item in batch:
            if item.taught is None:
                weights.append(np.full(len(item.now), item.example.credit / replayed))
                loss -= float(weights[-1] @ item.now)
            else:
                weights.append(np.zeros(len(item.now)))
                loss += float((_shares(item.taught) * _log_shares(item.taught)).sum()) / taught
        return Weighed(weights, loss, soft=[_targets(item, 1 / max(1, taught)) for item in batch])


def _targets(item: Scored, factor: float) -> SoftTargets:
    if item.taught is None:
        return SoftTargets.none(len(item.now))
    return SoftTargets(item.taught.ids, (factor * _shares(item.taught)).astype(np.float32))


def _shares(taught: LikelyTokens) -> Values:
    return np.exp(_log_shares(taught))


def _log_shares(taught: LikelyTokens) -> Values:
    log_probs = taught.log_probs.astype(np.float64)
    return np.asarray(log_probs - np.log(np.exp(log_probs).sum(axis=1, keepdims=True)), dtype=np.float64)
