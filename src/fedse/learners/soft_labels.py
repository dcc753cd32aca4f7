"""Imitation whose labels are soft: in part what the last round's policy would say itself (`objectives/teaching.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.objectives.teaching import SoftLabels, Teacher
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson


class SoftLabelsOptions(ImitationOptions):
    share: Annotated[float | Ramp, Scheduled(least=0, most=1)] = 0.1
    """Of a label, how much is the last round's policy: `{from: 0, to: 0.3, over: 20}` trusts it more and more."""
    top_k: int = Field(default=64, ge=1)
    """Likeliest tokens that stand for the policy's distribution."""


class SoftImitation(Imitation):
    """Imitates what is remembered, and in part what the adapter with which the lesson begins would say in its place."""

    name = "soft_labels"
    Options = SoftLabelsOptions
    learns_from_broadcast: ClassVar[bool] = True
    gradients_join: ClassVar[bool] = False
    options: SoftLabelsOptions

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return SoftLabels(at(self.options.share, self._round))

    def teacher(self, lesson: Lesson) -> Teacher:
        return Teacher(lesson.start, self.options.top_k)
