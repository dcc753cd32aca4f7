"""New tasks near those from which most can be learned, after eva (Ye and others, arXiv 2411.00062).

A part of what `by_signal` chooses for a round is replaced by tasks that the world makes of it: the walls of a maze with
another start and goal, the same rooms with another mission. An attempt at a made task counts for the task it was made of.
Where a world has no variation of a task, the task itself is explored.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedse.clients.site import Site
from fedse.curricula.by_signal import BySignal, BySignalOptions, SignalName
from fedse.protocols import Past
from fedse.seeds import stream
from fedse.types import Attempt, Task
from fedse.worlds.answers import varied
from fedse.worlds.made import base_of


class VariationsOptions(BySignalOptions):
    """What is varied, and how much of a round. eva's signal is the gap; the numbers are not the paper's."""

    signal: SignalName = "eva_gap"
    """What a task is worth; docs/curricula.md has the formulas."""
    made: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's tasks that are variations."""


class Variations(BySignal):
    """Varies the tasks from which there is most to learn."""

    Options = VariationsOptions
    needs_made_tasks = True

    def __init__(
        self,
        site: Site,
        signal: SignalName = "eva_gap",
        per: Literal["task", "category"] = "task",
        share: float = 0.8,
        rounds: int | None = 5,
        made: float = 0.5,
    ) -> None:
        super().__init__(site, signal, per, share, rounds)
        self.made = made

    def counts_for(self, attempt: Attempt) -> str:
        return base_of(attempt.task)

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        found = super().chosen(label, round, past)
        assert self.site.exploration is not None, "a site that explores nothing plans nothing"
        wanted = int(self.made * min(self.site.exploration.tasks, len(found)) + 0.5)
        place = self.site.places[label]
        seed = stream(self.site.seed, place.origin.client, round, place.origin.label, "variations")
        made = [varied(place.world, task.id, seed) or task for task in found[:wanted]]
        return [*made, *found[wanted:]]
