"""pass@k: the share of held-out tasks that one of k attempts solves, drawn at the temperature of exploring.

Greedy success says what a policy does; this says what it could still find. A policy that has settled on one way to play has
the same of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedse.clients.site import Site
from fedse.evaluation.metrics import score
from fedse.plugins import PluginOptions
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.types import Episode, Outcome, Purpose, RoundTask, Trajectory, WorldScore


class PassAtKOptions(PluginOptions):
    attempts: int = Field(default=8, ge=1)
    """k: attempts at each task."""
    tasks: int = Field(default=40, ge=1)
    """Held-out tasks of each world, the first of those that are played greedily; fewer where the world has fewer."""
    split: Literal["validation", "test"] = "validation"
    """Of which split they are."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature."""


class PassAtK:
    """Share of held-out tasks that one of several attempts solves, after the last round and in `fedse eval`."""

    Options = PassAtKOptions
    of_one_split = True

    def __init__(
        self,
        site: Site,
        attempts: int = 8,
        tasks: int = 40,
        split: Literal["validation", "test"] = "validation",
        temperature: float = 1.0,
    ) -> None:
        self.site = site
        self.attempts, self.tasks, self.split, self.temperature = attempts, tasks, split, temperature
        self._evaluation = Evaluation(site, EvaluationOptions(tasks=tasks))

    def plan(self, task: RoundTask) -> list[Episode]:
        if task.kind != "evaluate" or task.split != self.split:
            return []
        return [
            self.site.episode(once.world, once.task, Purpose.EVALUATE, task.round, attempt, self.temperature)
            for once in self._evaluation.first(task, self.tasks)
            for attempt in range(self.attempts)
        ]

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        del task  # Everything that was planned is of the same split.
        worlds = dict.fromkeys(item.world for item in played)
        return [self._of_world(label, [item for item in played if item.world == label]) for label in worlds]

    def _of_world(self, label: str, played: Sequence[Trajectory]) -> WorldScore:
        """Its episodes are tasks; steps and tokens are of all attempts at them. What one attempt reaches by chance, or an
        expert, is no bound of what several reach."""
        finished = {item.task for item in played if item.outcome is not Outcome.ERROR}
        solved = {item.task for item in played if item.outcome is Outcome.SUCCESS}
        attempts = score(label, self.split, played, floor=0.0, ceiling=None)
        return replace(attempts, episodes=len(finished), successes=len(solved))
