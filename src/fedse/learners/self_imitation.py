"""Self-imitation (arXiv 1806.05635): the likelihood of what did better than the mean of its group, by how much it did.

Imitation of successes weighs an easy task's tenth success like a hard task's first. Here a success counts by its advantage
over the other attempts at the task, and what is no better than they are counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedse.learners.cases import Case
from fedse.learners.groups import Scale, advantages, groups_of, uniform_share
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.learners.objective import Objective, Scored, Weighed
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


@dataclass(frozen=True)
class WeightedLikelihood:
    """The mean over the batch's tokens of advantage times negative log-likelihood."""

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        tokens = sum(len(item.now) for item in batch)
        weights = [np.full(len(item.now), item.example.credit / tokens) for item in batch]
        loss = -sum(float((own * item.now).sum()) for own, item in zip(weights, batch, strict=True))
        return Weighed(weights, loss)
