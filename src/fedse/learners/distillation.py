"""Distillation: the shared adapter learns what the site's own would say in the states that the shared one comes to.

KL(own || shared) over the agent's tokens of what was explored in the round, failures included (`objectives/teaching.py`).
The own adapter is what the site's last lesson made; averaging has taken from it what this brings back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from fedse.errors import BadInput
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.objectives.teaching import Divergence, Teacher
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson


class DistillationOptions(ImitationOptions):
    imitation: Annotated[float | Ramp, Scheduled(least=0)] = 1.0
    """Weight of the mean likelihood of what is remembered, which is learned beside the teacher; 0 leaves it out. A lesson
    without a teacher, as the first, is imitation."""
    top_k: int = Field(default=64, ge=1)
    """Likeliest tokens that stand for the teacher's distribution."""


class Distillation(Imitation):
    """Draws the broadcast adapter to what this site's last lesson made, where the broadcast adapter itself has been."""

    name = "distillation"
    Options = DistillationOptions
    learns_from_failures: ClassVar[bool] = True
    learns_from_own_adapter: ClassVar[bool] = True
    gradients_join: ClassVar[bool] = False
    options: DistillationOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        weight = at(self.options.imitation, self._round) if lesson.own else 1.0
        explored = [Case((item,)) for item in lesson.fresh] if lesson.own else []
        return explored + [Case((item,), (weight,), replayed=True) for item in lesson.trajectories if weight]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return Divergence()

    def teacher(self, lesson: Lesson) -> Teacher | None:
        if lesson.own is None:
            return None
        if lesson.own.layout != lesson.start.layout:
            raise BadInput(
                "learner: 'distillation' needs adapters whose tensors are alike in every round: choose an aggregator that "
                "keeps their shapes, and `mix: broadcast`."
            )
        return Teacher(lesson.own, self.options.top_k)
