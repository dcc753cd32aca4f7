"""What the policy gradients over groups of attempts at one task have in common (`objectives/clipped_ratio.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.clipped_ratio import CISPO_HIGH, ClippedRatio, LossType
from fedse.objectives.covariance import SHARE, Covariance
from fedse.objectives.groups import Group, Scale, advantages, groups_of, solved_share, uniform_share, win_advantages
from fedse.objectives.set_advantages import set_advantages
from fedse.objectives.step_credit import step_cases
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson, Trajectory


class ComparedOptions(ImitationOptions):
    """TRL's `num_generations` is `exploration.attempts` here, and `num_iterations` is `epochs`."""

    loss_type: LossType = "dapo"
    """How tokens are summed up: `grpo` by the mean of each trajectory, `bnpo` over the batch, `dapo` over the round,
    `dr_grpo` over a constant length, which is the round's longest; `cispo` as `dapo`, with clipped weights instead of
    clipped ratios."""
    scale_rewards: Scale = "group"
    """What a difference to the group's mean is divided by: the standard deviation of the group (`group`) or of the round
    (`batch`), the group's mean (`mean`, MaxRL), or nothing (`none`)."""
    advantage: Literal["mean", "wins", "sets", "steps"] = "mean"
    """What an attempt is compared with: the mean reward of its group; `wins`: each of the others, which it beats or not
    (SPO, arXiv 2401.04056); `sets`: sets of attempts with and without it, which are worth more if they differ (arXiv
    2509.25424); `steps`: as `mean`, and replies whose actions were valid with those whose were not (ADCA, arXiv 2511.10395).
    `scale_rewards` is for `mean` alone."""
    step_weight: float = Field(default=0.1, gt=0)
    """Weight of single replies beside the outcome, for `advantage: steps`."""
    set_size: int = Field(default=4, ge=1)
    """Attempts in a set, for `advantage: sets`; smaller groups are left out."""
    mask_truncated_completions: bool = False
    """Leave attempts that a turn limit or the end of the context ended out of the loss. What the others are compared with
    still has them in it."""
    importance_sampling_level: Literal["token", "sequence"] = "token"
    """Ratios by token, or one for each trajectory, the geometric mean of its tokens' (`sequence`, GSPO)."""
    epsilon: float = Field(default=0.2, gt=0, lt=1)
    """A ratio counts down to 1 - epsilon. The weights of `cispo` have no lower bound."""
    epsilon_high: float | None = Field(default=None, gt=0)
    """And up to 1 + epsilon_high; null is epsilon, and for `cispo`, whose weights go up to epsilon_high itself, 5."""
    beta: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Weight of the divergence from the adapter with which the round began."""
    entropy: Literal["clip_cov", "kl_cov"] | None = None
    """Keeps the policy from settling too soon (arXiv 2505.22617): `clip_cov` leaves out of every step a few tokens that
    would take most entropy away; `kl_cov` holds such tokens to what they were drawn with, and clips no ratio."""
    entropy_share: float | None = Field(default=None, gt=0, le=1)
    """Share of the tokens that this is done to; null is the paper's, 0.0002 for `clip_cov` and 0.002 for `kl_cov`."""
    entropy_weight: float = Field(default=1.0, gt=0)
    """How strongly `kl_cov` holds."""

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> ComparedOptions:
        self.refuse_without_effect(
            {
                "scale_rewards": ("advantage: mean", self.advantage == "mean"),
                "set_size": ("advantage: sets", self.advantage == "sets"),
                "step_weight": ("advantage: steps", self.advantage == "steps"),
                "entropy_share": ("entropy", self.entropy is not None),
                "entropy_weight": ("entropy: kl_cov", self.entropy == "kl_cov"),
                "epsilon": ("ratios that are clipped", self.entropy != "kl_cov" and self.loss_type != "cispo"),
                "epsilon_high": ("ratios that are clipped", self.entropy != "kl_cov"),
            }
        )
        return self

    @model_validator(mode="after")
    def _ratios_for_covariance(self) -> ComparedOptions:
        if self.entropy and (self.loss_type == "cispo" or self.importance_sampling_level == "sequence"):
            raise ValueError(
                f"`entropy: {self.entropy}` chooses tokens by their own ratios, which `loss_type: cispo` and "
                "`importance_sampling_level: sequence` do not have: leave one of them out"
            )
        return self


class Compared(Imitation):
    """Compares attempts at the same task with each other."""

    Options: type[ComparedOptions] = ComparedOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("kl", "clipped_share", "entropy", "uniform_groups", "solved_groups", "masked")
    options: ComparedOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        groups = groups_of(lesson.fresh)
        if self.options.advantage == "steps":
            compared = step_cases(groups, self.options.step_weight)
        else:
            compared = [Case((trajectory,), (advantage,)) for trajectory, advantage in self._advantages(groups)]
        masks = self.options.mask_truncated_completions
        return [case for case in compared if not (masks and case.trajectories[0].truncated)] + self.replayed(lesson)

    def replayed(self, lesson: Lesson) -> list[Case]:
        """What is learned beside the groups."""
        del lesson
        return []

    def _advantages(self, groups: list[Group]) -> list[tuple[Trajectory, float]]:
        if self.options.advantage == "sets":
            return set_advantages(groups, self.options.set_size)
        if self.options.advantage == "wins":
            return win_advantages(groups)
        return advantages(groups, self.options.scale_rewards)

    def ratio(self, compared: Sequence[Case], cases: int, imitation: float = 0.0) -> ClippedRatio:
        """The loss of some of a round's cases."""
        lengths = [case.trajectories[0].agent_tokens for case in compared] or [1]
        batches = max(1.0, cases / self.options.batch_size)
        options = self.options
        return ClippedRatio(
            loss_type=options.loss_type,
            by_sequence=options.importance_sampling_level == "sequence",
            low=options.epsilon,
            high=options.epsilon_high or (CISPO_HIGH if options.loss_type == "cispo" else options.epsilon),
            beta=at(options.beta, self._round),
            imitation=imitation,
            longest=max(lengths),
            tokens_per_batch=sum(lengths) / batches,
            entropy=Covariance(way, options.entropy_share or SHARE[way]) if (way := options.entropy) else None,
            entropy_weight=options.entropy_weight,
        )

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        groups = groups_of(lesson.fresh)
        told = {"uniform_groups": uniform_share(groups), "solved_groups": solved_share(groups)}
        if self.options.mask_truncated_completions:
            told["masked"] = sum(item.truncated for item in lesson.fresh) / max(1, len(lesson.fresh))
        return told
