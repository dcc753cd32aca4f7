"""Policy gradients over groups of attempts at the same task: GRPO and its relatives, with the names that TRL gives them.

Attempts that did better than their group become likelier, the others less likely. The ratio of a token's probability to the
one it was explored with is clipped, so that a round's attempts can be learned from more than once (`epochs`).
GRPO: arXiv 2402.03300. Dr. GRPO: 2503.20783. DAPO: 2503.14476. CISPO: 2506.13585. GSPO: 2507.18071. MaxRL: 2602.02710.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fedse.learners.compared import Compared, ComparedOptions
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson


class GroupPolicyGradientOptions(ComparedOptions):
    """`num_generations` is `exploration.attempts` here, and `num_iterations` is `epochs`."""

    imitation: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Weight of the mean likelihood of what is remembered, which is learned beside the groups; 0 leaves it out."""


class GroupPolicyGradient(Compared):
    """Makes attempts that did better than others at the same task likelier, and the others less likely."""

    name = "group_policy_gradient"
    Options = GroupPolicyGradientOptions
    options: GroupPolicyGradientOptions

    def replayed(self, lesson: Lesson) -> list[Case]:
        return [Case((item,), replayed=True) for item in lesson.trajectories] if self._imitation else []

    def objective(self, cases: Sequence[Case]) -> Objective:
        return self.ratio([case for case in cases if not case.replayed], len(cases), self._imitation)

    @property
    def _imitation(self) -> float:
        return at(self.options.imitation, self._round)
