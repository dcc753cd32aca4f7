"""The loss of policy gradients over groups: how far a token's probability may move from the one it was explored with.

GRPO: arXiv 2402.03300. Dr. GRPO: 2503.20783. DAPO: 2503.14476. CISPO: 2506.13585. GSPO: 2507.18071.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedse.objectives.cases import CreditedExample
from fedse.objectives.covariance import Covariance, Mask
from fedse.objectives.objective import Objective, Scored, Values, Weighed

LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"]
CISPO_HIGH = 5.0
"""How far its weights go, where nothing else is said."""


@dataclass(frozen=True)
class ClippedRatio(Objective):
    """Minus the derivative of -min(r A, clip(r) A) + beta (e^d - d - 1), with r the ratio to the probability with which a
    token was drawn and d the reference's log-probability minus the present one; each token times its share of the mean."""

    loss_type: LossType
    by_sequence: bool
    low: float
    high: float
    beta: float
    imitation: float
    longest: int
    """Agent's tokens of the longest trajectory of the round."""
    tokens_per_batch: float
    """Agent's tokens of the round, by the number of batches."""
    entropy: Covariance | None = None
    entropy_weight: float = 1.0

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        if example.replayed:
            return False
        held = self.entropy is not None and self.entropy.way == "kl_cov"
        return bool(self.beta) or held or not known

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        compared = [item for item in batch if not item.example.replayed]
        replayed = sum(len(item.now) for item in batch if item.example.replayed)
        weights: list[Values] = []
        loss, clipped, divergence = 0.0, 0, 0.0
        chosen = iter(self._chosen(compared))
        for item in batch:
            if item.example.replayed:
                weights.append(np.full(len(item.now), self.imitation / replayed))
                loss -= float(item.now.sum()) * self.imitation / replayed
                continue
            share = self._share(item, compared)
            ratio, advantage = np.exp(self._log_ratio(item)), item.credits
            counts, held = self._counts(item), next(chosen)
            if self.loss_type == "cispo":
                counts = (ratio <= self.high) | (advantage < 0)
                own = np.minimum(ratio, self.high) * advantage * share
                loss -= float((own * item.now).sum())
            else:
                own = np.where(counts, ratio, 0.0) * advantage * share
                limited = np.minimum(ratio * advantage, np.clip(ratio, 1 - self.low, 1 + self.high) * advantage)
                if self.entropy is not None and self.entropy.way == "clip_cov":
                    own, limited = np.where(held, 0.0, own), np.where(held, 0.0, limited)
                elif self.entropy is not None:
                    # From what the learner itself computed: two computations of the same differ by rounding, in both ways.
                    away_from = self.entropy_weight * held * item.log_ratio
                    own = (ratio * advantage - np.sign(away_from) * self.entropy_weight) * share
                    limited = ratio * advantage - np.abs(away_from)
                loss -= float(limited.sum()) * share
                if self.by_sequence:
                    # Every token moves the one ratio of the trajectory by its part, and the ratio counts for every token.
                    own = np.full(len(own), own.sum() / len(own))
            away = -item.log_ratio
            kl = np.exp(away) - away - 1
            weights.append(own - self.beta * share * (1 - np.exp(away)))
            loss += self.beta * share * float(kl.sum())
            clipped += int((~counts).sum())
            divergence += float(kl.sum())
        tokens = max(1, sum(len(item.now) for item in compared))
        # Tokens were drawn from what they are scored with at first, so their mean surprise is its entropy.
        surprise = -sum(float(item.before.sum()) for item in compared)
        told = {"kl": divergence / tokens, "clipped_share": clipped / tokens, "entropy": surprise / tokens}
        return Weighed(weights, loss, told if compared else {})

    def _counts(self, item: Scored) -> Mask:
        """Tokens whose ratio is within its bounds, on the side on which it has one."""
        ratio = np.exp(self._log_ratio(item))
        if self.entropy is not None and self.entropy.way == "kl_cov":
            return np.ones(len(ratio), dtype=np.bool_)
        return np.where(item.credits > 0, ratio <= 1 + self.high, ratio >= 1 - self.low)

    def _chosen(self, compared: Sequence[Scored]) -> list[Mask]:
        if self.entropy is None or not compared:
            return [np.zeros(len(item.now), dtype=np.bool_) for item in compared]
        return self.entropy.chosen(compared, [self._counts(item) for item in compared])

    def _log_ratio(self, item: Scored) -> Values:
        return np.full(len(item.now), item.log_importance.mean()) if self.by_sequence else item.log_importance

    def _share(self, item: Scored, compared: Sequence[Scored]) -> float:
        """Of one token in the mean."""
        if self.loss_type == "grpo":
            return 1.0 / (len(item.now) * len(compared))
        if self.loss_type == "bnpo":
            return 1.0 / sum(len(other.now) for other in compared)
        if self.loss_type == "dr_grpo":
            return 1.0 / (len(compared) * self.longest)
        return 1.0 / self.tokens_per_batch
