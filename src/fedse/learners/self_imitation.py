"""Self-imitation (arXiv 1806.05635): the likelihood of what did better than the mean of its group, by how much it did.

Imitation of successes weighs an easy task's tenth success like a hard task's first. Here a success counts by its advantage
over the other attempts at the task, and what is no better than they are counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.groups import Scale, advantages, groups_of, uniform_share
from fedse.objectives.objective import Objective
from fedse.objectives.weighted_likelihood import WeightedLikelihood
from fedse.types import Lesson


class SelfImitationOptions(ImitationOptions):
    scale_rewards: Scale = "group"
    """What a difference to the group's mean is divided by, as in `group_policy_gradient`."""


class SelfImitation(Imitation):
    """Learns attempts of this round that did better than others at the same task, by their advantage."""

    name = "self_imitation"
    Options = SelfImitationOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("uniform_groups",)
    options: SelfImitationOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        found = advantages(groups_of(lesson.fresh), self.options.scale_rewards)
        return [Case((trajectory,), (advantage,)) for trajectory, advantage in found if advantage > 0]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return WeightedLikelihood()

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        return {"uniform_groups": uniform_share(groups_of(lesson.fresh))}
