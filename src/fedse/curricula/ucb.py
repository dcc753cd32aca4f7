"""Upper confidence bounds (UCB1, with which OptimAI, arXiv 2504.16918, chooses among plans) over categories or tasks.

    bound = mean score + sqrt(c ln N / n)        n attempts of N in all; what was never tried comes first

A round takes its tasks one by one, each of the arm with the highest bound. What is planned counts as tried, with the arm's
own mean. Everything is computed anew from earlier attempts.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.types import Outcome, Task


class UcbOptions(PluginOptions):
    """What the arms are, and how much it counts that an arm was seldom tried."""

    per: Literal["category", "task"] = "category"
    """Whether categories are compared, or single tasks."""
    constant: float = Field(default=2.0, ge=0)
    """c of the bound; UCB1 has 2. The higher, the more evenly arms are tried."""
    rounds: int | None = Field(default=None, ge=1)
    """So many rounds back attempts count; empty: all of them."""


class Ucb(Uniform):
    """Explores where the upper confidence bound of the score is highest."""

    Options = UcbOptions

    def __init__(
        self,
        site: Site,
        per: Literal["category", "task"] = "category",
        constant: float = 2.0,
        rounds: int | None = None,
    ) -> None:
        super().__init__(site)
        self.per = per
        self.constant = constant
        self.rounds = rounds

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        budget = self.site.exploration
        assert budget is not None, "a site that explores nothing plans nothing"
        left: dict[str, list[Task]] = {}
        for task in super().chosen(label, round, past):
            left.setdefault(task.category if self.per == "category" else task.id, []).append(task)
        tries, means = self._tried(label, round, past, left)
        found: list[Task] = []
        while left and len(found) < budget.tasks:
            # Of equal bounds the first, which is the first of the uniform order.
            arm = max(left, key=lambda arm: self.bound(means[arm], tries[arm], sum(tries.values())))
            found.append(left[arm].pop(0))
            tries[arm] += budget.attempts
            if not left[arm]:
                del left[arm]
        return found

    def bound(self, mean: float, tries: int, total: int) -> float:
        return mean + math.sqrt(self.constant * math.log(total) / tries) if tries else math.inf

    def _tried(
        self, label: str, round: int, past: Past, arms: dict[str, list[Task]]
    ) -> tuple[dict[str, int], dict[str, float]]:
        """How often each arm was tried, and its mean score."""
        since = 0 if self.rounds is None else round - self.rounds
        scores: dict[str, list[float]] = {arm: [] for arm in arms}
        for item in past.attempts(label):
            arm = item.category if self.per == "category" else item.task
            if item.round >= since and item.outcome is not Outcome.ERROR and arm in scores:
                scores[arm].append(min(max(item.score, 0.0), 1.0))
        means = {arm: sum(own) / len(own) if own else 0.0 for arm, own in scores.items()}
        return {arm: len(own) for arm, own in scores.items()}, means
