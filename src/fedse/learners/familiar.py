"""Imitation of what is new and, of what is remembered, of what is neither known by heart nor strange
(`objectives/familiarity.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.familiarity import FamiliarReplay
from fedse.objectives.objective import Objective
from fedse.types import Lesson


class FamiliarOptions(ImitationOptions):
    """The band is the paper's: a perplexity from 1 / 0.95 up to 1 / 0.5."""

    min_familiarity: float = Field(default=0.5, ge=0, le=1)
    """A remembered reply counts if its familiarity, the geometric mean of its tokens' probabilities, is above this."""
    max_familiarity: float = Field(default=0.95, ge=0, le=1)
    """And if its familiarity is not above this."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_familiarity >= self.max_familiarity:
            raise ValueError(
                f"`min_familiarity` ({self.min_familiarity}) must be below `max_familiarity` ({self.max_familiarity})"
            )
        return self


class FamiliarImitation(Imitation):
    """Imitates this round's finds, and remembered replies that the policy half knows."""

    name = "familiar"
    Options = FamiliarOptions
    replays: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("familiar_share",)
    options: FamiliarOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        # Until something was found, what the buffer began with is all there is, also at a site that joins late.
        found = any(0 < item.round < self._round for item in lesson.trajectories)
        return [Case((item,), replayed=found and item.round < self._round) for item in lesson.trajectories]

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return FamiliarReplay(self.options.min_familiarity, self.options.max_familiarity)
