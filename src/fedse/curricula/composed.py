"""New tasks of two that were solved, after LMA3 (Colas and others, arXiv 2305.12487), which composes goals of mastered ones.

Two made tasks in the same place that the buffer remembers as solved become one that asks for both. Which pairs are taken is
drawn anew every round; the rest of a round is uniform.
"""

from __future__ import annotations

from itertools import combinations

from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.protocols import Past
from fedse.seeds import generator
from fedse.types import Outcome, Task
from fedse.worlds.answers import composed
from fedse.worlds.made import base_of, is_made


class ComposedOptions(PluginOptions):
    """How much of a round is composed."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's tasks, as far as there are pairs of solved ones."""


class Composed(Uniform):
    """Uniform, with tasks composed of solved ones."""

    Options = ComposedOptions
    needs_composed_tasks = True

    def __init__(self, site: Site, share: float = 0.5) -> None:
        super().__init__(site)
        self.share = share

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        assert self.site.exploration is not None, "a site that explores nothing plans nothing"
        pairs = self._pairs(label, past)
        place = self.site.places[label]
        order = generator(self.site.seed, place.origin.client, round, place.origin.label, "composed")
        wanted = int(self.share * self.site.exploration.tasks + 0.5)
        found: dict[str, Task] = {}
        for index in order.permutation(len(pairs)):
            if len(found) >= wanted:
                break
            made = composed(place.world, *pairs[index])
            if made is not None:
                found[made.id] = made
        return [*found.values(), *super().chosen(label, round, past)]

    def _pairs(self, label: str, past: Past) -> list[tuple[str, str]]:
        """Solved tasks of one place, two and two."""
        place = self.site.places[label]
        solved: dict[str, set[str]] = {}
        for item in past.remembered(label):
            if item.outcome is Outcome.SUCCESS and is_made(item.task) and place.may_explore(item.task):
                solved.setdefault(base_of(item.task), set()).add(item.task)
        return [pair for base in sorted(solved) for pair in combinations(sorted(solved[base]), 2)]
