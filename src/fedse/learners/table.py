"""Imitation for the model `table`: counts which action was taken on which observation."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.errors import BadInput
from fedse.models.table import TENSOR, Table
from fedse.plugins import PluginOptions
from fedse.types import Adapter, Learned, Lesson


class TableLearner:
    """Moves each row towards the log of the counts of its actions."""

    class Options(PluginOptions):
        rate: float = Field(default=1.0, gt=0, le=1)
        """Share of the way to the new scores that one round goes."""

    def __init__(self, model: Table, rate: float = 1.0) -> None:
        if not isinstance(model, Table):
            raise BadInput("learner: 'table' works with the model 'table' only; use 'imitation' for a language model.")
        self.model = model
        self.rate = rate

    def learn(self, lesson: Lesson) -> Learned | None:
        counts = np.zeros((self.model.rows, len(self.model.actions)))
        for trajectory in lesson.trajectories:
            for step in trajectory.steps:
                if step.valid and step.learned and step.action in self.model.actions:
                    counts[self.model.row(step.observation), self.model.actions.index(step.action)] += 1
        seen = counts.sum(axis=1) > 0
        scores = lesson.start.tensors[TENSOR].astype(np.float64)
        target = np.log1p(counts[seen])
        loss = float(((scores[seen] - target) ** 2).mean()) if seen.any() else 0.0
        scores[seen] += self.rate * (target - scores[seen])
        fitted = scores.astype(np.float32)
        if np.array_equal(fitted, lesson.start.tensors[TENSOR]):
            return None  # Counts that did not change since the last round have nothing more to teach.
        return Adapter({TENSOR: fitted}, lesson.start.config), {"loss": loss}
