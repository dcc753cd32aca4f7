"""Self-Evolving Curriculum (SEC, Chen et al.): a bandit whose arms are the categories of a world's tasks.

    Q_c <- (1 - a) Q_c + a mean|A|_c        after every round; Q begins at 0
    P(c) = exp(Q_c / t) / sum of exp(Q / t)

|A| is how far a reward lies from the mean of its group, in standard deviations: large where successes and failures mix. A
group is the attempts at one task in one round; with a single attempt at each task, all attempts at the category in that
round. A category that a round did not draw has no advantage, so that its Q decays. A task of the drawn category is drawn
uniformly, and none twice in a round. Q is computed anew from all earlier attempts: there is nothing to lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.signals import Tried, sec_advantage
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.seeds import generator
from fedse.types import Attempt, Outcome, Task


class SecOptions(PluginOptions):
    """How fast the bandit learns, and how much it prefers what is best. The paper takes 1, 0.4 or 0.2 as temperature."""

    rate: float = Field(default=0.5, gt=0, le=1)
    """Share of a category's value that the last round makes up. 0.5 is the paper's."""
    temperature: float = Field(default=0.4, gt=0)
    """Of the draw of categories, not of replies: the lower it is, the more the best category is preferred."""


class Advantages(NamedTuple):
    """Of one category."""

    tries: int
    total: float
    """Sum of |A|."""


class Sec(Uniform):
    """A bandit over the categories of tasks: those in which successes and failures mix are explored most."""

    Options = SecOptions

    def __init__(self, site: Site, rate: float = 0.5, temperature: float = 0.4) -> None:
        super().__init__(site)
        self.rate = rate
        self.temperature = temperature

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        left: dict[str, list[Task]] = {}
        for task in super().chosen(label, round, past):
            left.setdefault(task.category, []).append(task)
        values = self.values(label, sorted(left), past.attempts(label))
        assert self.site.exploration is not None, "a site that explores nothing plans nothing"
        origin = self.site.places[label].origin
        draws = generator(self.site.seed, origin.client, round, origin.label, "sec").random(self.site.exploration.tasks)
        found: list[Task] = []
        for draw in draws:
            arms = [category for category in values if left[category]]
            if not arms:
                break
            found.append(left[arms[self._arm([values[category] for category in arms], draw)]].pop(0))
        return found

    def _arm(self, values: Sequence[float], draw: float) -> int:
        scaled = np.array(values) / self.temperature
        weights = np.cumsum(np.exp(scaled - scaled.max()))
        return min(int(np.searchsorted(weights, draw * weights[-1], side="right")), len(values) - 1)

    def values(self, label: str, categories: Sequence[str], attempts: Sequence[Attempt]) -> dict[str, float]:
        """Q of each category of a world after these attempts, which come oldest first."""
        del label
        values = dict.fromkeys(categories, 0.0)
        for _, sums in self.rounds(attempts):
            for category in values:
                advantage = sums[category].total / sums[category].tries if category in sums else 0.0
                values[category] += self.rate * (advantage - values[category])
        return values

    def rounds(self, attempts: Sequence[Attempt]) -> Iterator[tuple[int, Mapping[str, Advantages]]]:
        """What each round found out about its categories, oldest first."""
        finished = [item for item in attempts if item.outcome is not Outcome.ERROR]
        for number, of_round in groupby(finished, key=lambda item: item.round):
            yield number, self._advantages(list(of_round))

    def _advantages(self, attempts: Sequence[Attempt]) -> Mapping[str, Advantages]:
        assert self.site.exploration is not None
        groups: dict[tuple[str, str], list[Attempt]] = {}
        for item in attempts:
            task = item.task if self.site.exploration.attempts > 1 else ""
            groups.setdefault((item.category, task), []).append(item)
        sums: dict[str, Advantages] = {}
        for (category, _), group in groups.items():
            tries, total = sums.get(category, Advantages(0, 0.0))
            sums[category] = Advantages(tries + len(group), total + len(group) * sec_advantage(Tried.of(group)))
        return sums
