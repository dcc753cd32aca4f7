"""What the shared adapter forgets: the same validation tasks in every m-th round, in every world of every site."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedse.clients.site import Site
from fedse.plugins import PluginOptions
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.types import Episode, RoundTask, Trajectory, WorldScore


class Drift:
    """Success on the same validation tasks in every m-th round: what was known once and is forgotten."""

    class Options(PluginOptions):
        every: int = Field(default=5, ge=1)
        """The adapter after every so many rounds is measured, and those before the first and after the last round."""
        tasks: int = Field(default=40, ge=1)
        """Validation tasks of each world; fewer where the world has fewer."""

        learned: bool = False
        """Rounds whose number is divisible by `every` are also measured before aggregation: each site plays with what it has
        learned, so that one sees whether it has forgotten or the aggregate."""

    def __init__(self, site: Site, every: int = 5, tasks: int = 40, learned: bool = False) -> None:
        self.every = every
        self.tasks = tasks
        self.learned = learned
        self._evaluation = Evaluation(site, EvaluationOptions(tasks=tasks))

    def plan(self, task: RoundTask) -> list[Episode]:
        # The adapter that enters a round is that of the round before.
        due = task.kind == "evaluate" or (task.round - 1) % self.every == 0
        return self._evaluation.first(task, self.tasks) if due and task.split == "validation" else []

    def plan_learned(self, task: RoundTask) -> list[Episode]:
        due = self.learned and task.round % self.every == 0
        return self._evaluation.first(task, self.tasks) if due else []

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        return self._evaluation.score_of(task, played, self.tasks)
