"""Policy gradients over groups of attempts at the same task: GRPO and its relatives, with the names that TRL gives them.

Attempts that did better than their group become likelier, the others less likely. The ratio of a token's probability to the
one it was explored with is clipped, so that a round's attempts can be learned from more than once (`epochs`).
GRPO: arXiv 2402.03300. Dr. GRPO: 2503.20783. DAPO: 2503.14476. CISPO: 2506.13585. GSPO: 2507.18071. MaxRL: 2602.02710.
`bottom_up` takes the loss of an inner layer's policy first (`objectives/bottom_up.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import model_validator

from fedse.errors import BadInput
from fedse.learners.compared import Compared, ComparedOptions
from fedse.objectives.bottom_up import LAYER_ENTROPIES, BottomUpOptions
from fedse.objectives.cases import Case
from fedse.objectives.objective import Objective
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson

if TYPE_CHECKING:
    from fedse.fitting.loop import Fitting
    from fedse.models.causal_lm import CausalLM
    from fedse.networks.training.passes import Pass


class GroupPolicyGradientOptions(ComparedOptions):
    """`num_generations` is `exploration.attempts` here, and `num_iterations` is `epochs`."""

    imitation: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Weight of the mean likelihood of what is remembered, which is learned beside the groups; 0 leaves it out."""
    bottom_up: BottomUpOptions | None = None
    """Train an inner layer's policy in the first rounds, and tell the entropy of every layer's in all of them (BuPO, arXiv
    2512.19673)."""

    @model_validator(mode="after")
    def _a_phase_leaves_something_behind(self) -> GroupPolicyGradientOptions:
        if self.bottom_up is not None and self.restart:
            raise ValueError(
                "`bottom_up` prepares lower layers for later rounds, and with `restart: true` those begin with the base "
                "model: leave one of them out"
            )
        return self


class GroupPolicyGradient(Compared):
    """Makes attempts that did better than others at the same task likelier, and the others less likely."""

    name = "group_policy_gradient"
    Options = GroupPolicyGradientOptions
    metrics: ClassVar[tuple[str, ...]] = (*Compared.metrics, *LAYER_ENTROPIES)
    options: GroupPolicyGradientOptions

    def __init__(self, model: CausalLM, **options: object) -> None:
        super().__init__(model, **options)
        if (phase := self.options.bottom_up) is None:
            return
        from fedse.networks.training.passes import inner_layers

        if phase.layer > (highest := inner_layers(model.network)):
            raise BadInput(
                f"learner.bottom_up.layer: the highest that is not the last layer of {model.name} is {highest}, and "
                f"{phase.layer} is asked for."
            )

    def replayed(self, lesson: Lesson) -> list[Case]:
        return [Case((item,), replayed=True) for item in lesson.trajectories] if self._imitation else []

    def objective(self, cases: Sequence[Case]) -> Objective:
        return self.ratio([case for case in cases if not case.replayed], len(cases), self._imitation)

    def fitting(self, through: Pass, cases: Sequence[Case], lesson: Lesson, tokens_at_once: int) -> Fitting:
        if (phase := self.options.bottom_up) is None:
            return super().fitting(through, cases, lesson, tokens_at_once)
        from fedse.fitting.bottom_up_loop import BottomUpFitting

        return BottomUpFitting(
            *(through, cases, self.model.context, lesson.key, self.objective(cases), lesson.start),
            layer=phase.layer if self._round <= phase.rounds else None,
            normed=phase.norm,
            tokens_at_once=tokens_at_once,
            **self._settings(),
        )

    @property
    def _imitation(self) -> float:
        return at(self.options.imitation, self._round)
