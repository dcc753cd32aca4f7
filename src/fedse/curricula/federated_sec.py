"""SEC with one table of categories for all sites: what one site finds out about a category, the others need not.

    n_c, s_c = sums over a site's earlier rounds of its tries and of |A| at category c, each round back counting (1 - a)
    Q_c      = s_c / n_c of those who took part in the last round together; where these have not tried c, of the site's own;
               0 where it has not tried c either
    P(c)     as in `sec`

What others know is what the participants of the last round told, which need not be all sites (`participation`).
What crosses are these two sums for each category, as numbers at places that the names of world and category stand for; names
do not cross. The server hands out their means, whose quotient is that of the sums. A site tells what it knew when the round
began, so what is found in a round steers the second one after it. Unlike in `sec`, a category that nobody draws keeps its Q.
Cost: two times 4 KB more in each direction and round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.clients.site import Site
from fedse.curricula.sec import Sec
from fedse.protocols import Past
from fedse.seeds import stream
from fedse.types import Attempt, Planned, RoundTask, Tensors, Vector

PLACES = 1024
"""The categories of fedse's worlds all have different ones; of others two may share one, and then have the same Q."""


class FederatedSec(Sec):
    """The bandit `sec` over what all sites together found out about each category."""

    shares = "categories"
    gives = frozenset({"tries", "advantages"})

    def __init__(self, site: Site, rate: float = 0.5, temperature: float = 0.4) -> None:
        super().__init__(site, rate, temperature)
        self._own: Tensors = nothing()
        self._together: Tensors = nothing()

    def take(self, round: int, merged: Tensors) -> None:
        del round
        fits = merged.keys() == self.gives and all(tensor.shape == (PLACES,) for tensor in merged.values())
        self._together = merged if fits else nothing()

    def give(self, round: int) -> Tensors:
        del round
        return self._own

    def plan(self, task: RoundTask, past: Past) -> Planned:
        self._own = self._sums(task.round, past)
        return (yield from super().plan(task, past))

    def values(self, label: str, categories: Sequence[str], attempts: Sequence[Attempt]) -> dict[str, float]:
        del attempts
        values = {}
        for category in categories:
            place = place_of(label, category)
            # Those who took part in the last round may all have other categories.
            known = self._together if self._together["tries"][place] > 0 else self._own
            tries, total = (float(known[name][place]) for name in ("tries", "advantages"))
            # A mean |A| is never above 1, whatever a site tells.
            values[category] = min(max(total / tries, 0.0), 1.0) if tries > 0 else 0.0
        return values

    def _sums(self, round: int, past: Past) -> dict[str, Vector]:
        sums = nothing()
        for label in self.site.places:
            for number, found in self.rounds(past.attempts(label)):
                weight = (1 - self.rate) ** (round - 1 - number)
                for category, (tries, total) in found.items():
                    sums["tries"][place_of(label, category)] += weight * tries
                    sums["advantages"][place_of(label, category)] += weight * total
        return sums


def nothing() -> dict[str, Vector]:
    return {name: np.zeros(PLACES, dtype=np.float32) for name in sorted(FederatedSec.gives)}


def place_of(label: str, category: str) -> int:
    """The second world of a name has the categories of the first."""
    return stream("category", label.split("#")[0], category) % PLACES
