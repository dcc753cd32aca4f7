"""Success on tasks nobody learns from: greedy, frozen, the same tasks in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import Field

from fedse.clients.client import EVALUATION
from fedse.clients.site import Site
from fedse.evaluation.metrics import score
from fedse.plugins import PluginOptions
from fedse.protocols import Probe
from fedse.seeds import generator
from fedse.stopwatch import during
from fedse.types import Episode, Purpose, RoundTask, Split, Task, Trajectory, WorldScore
from fedse.worlds import reference
from fedse.worlds.answers import blamed


class EvaluationOptions(PluginOptions):
    """How the adapter that enters a round is measured: greedy, frozen, on tasks nobody learns from."""

    tasks: int = Field(default=40, ge=1)
    """Validation tasks of each world before a site's first and after the last round."""
    between: int | None = Field(default=None, ge=0)
    """Validation tasks in the rounds between; as many as `tasks` when not set, none when 0."""
    test_tasks: int | None = Field(default=200, ge=0)
    """Test tasks of each world, played once after the last round; all of them when null, no test when 0."""


class Evaluation:
    """The probe that every client has."""

    def __init__(self, site: Site, options: EvaluationOptions) -> None:
        self.site = site
        self.options = options
        self._references = cache(self._measure_references)

    def plan(self, task: RoundTask) -> list[Episode]:
        return [
            self.site.episode(label, item, Purpose.EVALUATE, task.round)
            for label in self.site.places
            if task.world in ("", label)
            for item in self._held_out(label, task)
        ]

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        scores = []
        for label in self.site.places:
            own = [item for item in played if item.world == label]
            if own:
                floor, ceiling = self._references(label, task.split, tuple(self._held_out(label, task)))
                scores.append(score(label, task.split, own, floor, ceiling))
        return scores

    def _held_out(self, label: str, task: RoundTask) -> list[Task]:
        """The same tasks every time, in an order that does not depend on the run's seed, so that runs can be paired."""
        if task.split == "test":
            count = self.options.test_tasks
        elif task.kind == "evaluate" or task.round == self.site.joins or self.options.between is None:
            count = self.options.tasks
        else:
            count = self.options.between
        place = self.site.places[label]
        tasks = place.tasks(task.split)
        order = generator("held out", place.world.name, task.split).permutation(len(tasks))
        return [tasks[index] for index in order[:count]]

    def _measure_references(self, label: str, split: Split, tasks: tuple[Task, ...]) -> tuple[float, float | None]:
        del split
        world = self.site.places[label].world
        with during("world"), blamed(world, "its expert"):
            return reference.floor(world, tasks), reference.ceiling(world, tasks) if world.has_expert else None


def evaluation_of(probes: Mapping[str, Probe]) -> Evaluation:
    """The one among a client's probes that measures success."""
    found = probes[EVALUATION]
    assert isinstance(found, Evaluation)
    return found
