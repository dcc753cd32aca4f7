"""Does the mean help or hurt a site? The same few validation tasks, played with what a client has learned, before it sends,
and with what it makes of the adapter that comes back."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.probes.evaluation import Evaluation
from fedse.types import Episode, RoundTask, Trajectory, WorldScore


class AfterLearning:
    """The first tasks of every evaluation of the validation split, so that they are part of what is played anyway."""

    def __init__(self, evaluation: Evaluation, tasks: int) -> None:
        self.evaluation = evaluation
        self.tasks = tasks

    def plan_learned(self, task: RoundTask) -> list[Episode]:
        return self.evaluation.first(task, self.tasks) if task.split == "validation" else []

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        """Of what was played, those episodes that `plan_learned` names."""
        wanted = {(episode.world, episode.task.id) for episode in self.plan_learned(task)}
        own = [item for item in played if (item.world, item.task) in wanted]
        return self.evaluation.score_of(task, own, self.tasks)
