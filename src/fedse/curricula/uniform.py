"""Training tasks drawn uniformly, anew every round: the paper's way."""

from __future__ import annotations

from typing import ClassVar

from fedse.clients.site import Site
from fedse.plugins.schedules import at
from fedse.protocols import Past
from fedse.seeds import generator
from fedse.types import Episode, Planned, Purpose, RoundTask, Task


class Uniform:
    """As many tasks of each world as the experiment says. A variant overrides `chosen`."""

    keeps_to_exploration = True
    ignores_the_past: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        # A variant has a reason to be one, and most look back.
        cls.ignores_the_past = cls.__dict__.get("ignores_the_past", False)

    def __init__(self, site: Site) -> None:
        self.site = site

    def plan(self, task: RoundTask, past: Past) -> Planned:
        yield from ()  # A curriculum may ask for episodes on the way; this one has nothing to ask.
        budget = self.site.exploration
        assert budget is not None, "a site that explores nothing plans nothing"
        temperature = at(budget.temperature, task.round)
        episodes: list[Episode] = []
        for label in self.site.places:
            for item in self.chosen(label, task.round, past)[: budget.tasks]:
                for attempt in range(budget.attempts):
                    episodes.append(self.site.episode(label, item, Purpose.EXPLORE, task.round, attempt, temperature))
        return episodes

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        """The world's training tasks, the ones to explore first."""
        del past
        place = self.site.places[label]
        training = place.tasks("train")
        order = generator(self.site.seed, place.origin.client, round, place.origin.label, "explore")
        return [training[index] for index in order.permutation(len(training))]
