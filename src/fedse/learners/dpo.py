"""DPO: a success and a failure at the same task are a pair (`objectives/dpo_loss.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.dpo_loss import DpoLoss
from fedse.objectives.groups import groups_of
from fedse.objectives.objective import Objective
from fedse.objectives.pairs import pairs_of
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson


class DpoOptions(ImitationOptions):
    """A batch is made of pairs: `batch_size` counts them."""

    beta: Annotated[float | Ramp, Scheduled(above=0)] = 0.1
    """How soon the two are far enough apart."""
    length_normalized: bool = False
    """Means over the agent's tokens in place of sums, so that long trajectories do not count more."""
    max_pairs_per_task: int = Field(default=4, ge=1)
    """Pairs of one task in a round. Each failure is paired with another success as long as there are some."""


class Dpo(Imitation):
    """Makes a success likelier than a failure at the same task, measured from the round's beginning."""

    name = "dpo"
    Options = DpoOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("winner_log_ratio", "loser_log_ratio", "pairs_in_order")
    options: DpoOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        return pairs_of(groups_of(lesson.fresh), lesson.trajectories, self.options.max_pairs_per_task)

    def objective(self, cases: Sequence[Case]) -> Objective:
        del cases  # Nothing depends on what else is in the round.
        return DpoLoss(at(self.options.beta, self._round), self.options.length_normalized)
