"""Policy gradients over groups of attempts at the same task: GRPO and its relatives, with the names that TRL gives them.

Attempts that did better than their group become likelier, the others less likely. The ratio of a token's probability to the
one it was explored with is clipped, so that a round's attempts can be learned from more than once (`epochs`).
GRPO: arXiv 2402.03300. Dr. GRPO: 2503.20783. DAPO: 2503.14476. CISPO: 2506.13585. GSPO: 2507.18071. MaxRL: 2602.02710.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.objectives.cases import Case
from fedse.objectives.clipped_ratio import ClippedRatio, LossType
from fedse.objectives.covariance import SHARE, Covariance
from fedse.objectives.groups import Scale, advantages, differ, groups_of, solved_share, uniform_share, win_shares
from fedse.objectives.objective import Objective
from fedse.objectives.set_advantages import set_advantages
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson, Trajectory

_CISPO_HIGH = 5.0


class GroupPolicyGradientOptions(ImitationOptions):
    """`num_generations` is `exploration.attempts` here, and `num_iterations` is `epochs`."""

    loss_type: LossType = "dapo"
    """How tokens are summed up: `grpo` by the mean of each trajectory, `bnpo` over the batch, `dapo` over the round,
    `dr_grpo` over a constant length, which is the round's longest; `cispo` as `dapo`, with clipped weights instead of
    clipped ratios."""
    scale_rewards: Scale = "group"
    """What a difference to the group's mean is divided by: the standard deviation of the group (`group`) or of the round
    (`batch`), the group's mean (`mean`, MaxRL), or nothing (`none`)."""
    advantage: Literal["mean", "wins", "sets"] = "mean"
    """What an attempt is compared with: the mean reward of its group; `wins`: each of the others, which it beats or not
    (SPO, arXiv 2401.04056); `sets`: sets of attempts with and without it, which are worth more if they differ (arXiv
    2509.25424). `scale_rewards` is for `mean` alone."""
    set_size: int = Field(default=4, ge=1)
    """Attempts in a set, for `advantage: sets`; smaller groups are left out."""
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
    imitation: Annotated[float | Ramp, Scheduled(least=0)] = 0.0
    """Weight of the mean likelihood of what is remembered, which is learned beside the groups; 0 leaves it out."""

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> GroupPolicyGradientOptions:
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        needs = {
            "scale_rewards": ("advantage: mean", self.advantage == "mean"),
            "set_size": ("advantage: sets", self.advantage == "sets"),
            "entropy_share": ("entropy", self.entropy is not None),
            "entropy_weight": ("entropy: kl_cov", self.entropy == "kl_cov"),
        }
        for name, (other, there) in needs.items():
            if not there and getattr(self, name) != defaults[name]:
                raise ValueError(
                    f"`{name}` does something with `{other}` only: leave one of them out, or both as they are"
                )
        return self

    @model_validator(mode="after")
    def _ratios_for_covariance(self) -> GroupPolicyGradientOptions:
        if self.entropy and (self.loss_type == "cispo" or self.importance_sampling_level == "sequence"):
            raise ValueError(
                f"`entropy: {self.entropy}` chooses tokens by their own ratios, which `loss_type: cispo` and "
                "`importance_sampling_level: sequence` do not have: leave one of them out"
            )
        return self


class GroupPolicyGradient(Imitation):
    """Makes attempts that did better than others at the same task likelier, and the others less likely."""

    name = "group_policy_gradient"
    Options = GroupPolicyGradientOptions
    learns_from_failures: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("kl", "clipped_share", "entropy", "uniform_groups", "solved_groups")
    options: GroupPolicyGradientOptions

    def cases(self, lesson: Lesson) -> list[Case]:
        compared = [Case((trajectory,), (advantage,)) for trajectory, advantage in self._advantages(lesson)]
        replayed = [Case((item,), replayed=True) for item in lesson.trajectories] if self._imitation else []
        return compared + replayed

    def _advantages(self, lesson: Lesson) -> list[tuple[Trajectory, float]]:
        groups = groups_of(lesson.fresh)
        if self.options.advantage == "sets":
            return set_advantages(groups, self.options.set_size)
        if self.options.advantage == "wins":
            return [
                (item, share - 0.5)
                for group in groups
                if differ(group)
                for item, share in zip(group, win_shares(group), strict=True)
            ]
        return advantages(groups, self.options.scale_rewards)

    def objective(self, cases: Sequence[Case]) -> Objective:
        compared = [case.trajectories[0] for case in cases if not case.replayed]
        lengths = [item.agent_tokens for item in compared] or [1]
        batches = max(1.0, len(cases) / self.options.batch_size)
        options = self.options
        high = options.epsilon_high or (_CISPO_HIGH if options.loss_type == "cispo" else options.epsilon)
        return ClippedRatio(
            loss_type=options.loss_type,
            by_sequence=options.importance_sampling_level == "sequence",
            low=options.epsilon,
            high=high,
            beta=at(options.beta, self._round),
            imitation=self._imitation,
            longest=max(lengths),
            tokens_per_batch=sum(lengths) / batches,
            entropy=Covariance(way, options.entropy_share or SHARE[way]) if (way := options.entropy) else None,
            entropy_weight=options.entropy_weight,
        )

    def told_of(self, lesson: Lesson) -> Mapping[str, float]:
        groups = groups_of(lesson.fresh)
        return {"uniform_groups": uniform_share(groups), "solved_groups": solved_share(groups)}

    @property
    def _imitation(self) -> float:
        return at(self.options.imitation, self._round)
