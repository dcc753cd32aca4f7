"""Imitation weighed by how likely the present policy would do the same (`objectives/likelihood_replay.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.likelihood_replay import LikelihoodReplay
from fedse.objectives.objective import Objective


class LikelihoodReplayOptions(ImitationOptions):
    max_weight: float = Field(default=2.0, gt=0)
    """The most that a trajectory counts beside one that the policy would do as it was done."""


class ReplayByLikelihood(Imitation):
    """Imitates what is remembered; what the policy has left behind counts less."""

    name = "likelihood_replay"
    Options = LikelihoodReplayOptions
    replays: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("replay_weight",)
    options: LikelihoodReplayOptions

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return LikelihoodReplay(self.options.max_weight)
