"""Policy gradients over groups of attempts at the same task: GRPO and its relatives, with the names that TRL gives them.

Attempts that did better than their group become likelier, the others less likely. The ratio of a token's probability to the
one it was explored with is clipped, so that a round's attempts can be learned from more than once (`epochs`).
GRPO: arXiv 2402.03300. Dr. GRPO: 2503.20783. DAPO: 2503.14476. CISPO: 2506.13585. GSPO: 2507.18071. MaxRL: 2602.02710.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fedse.learners.cases import Case
from fedse.learners.covariance import SHARE, Covariance, Mask
from fedse.learners.groups import Scale, advantages, differ, groups_of, solved_share, uniform_share, win_shares
from fedse.learners.imitation import Imitation, ImitationOptions
from fedse.learners.objective import Objective, Scored, Values, Weighed
from fedse.learners.set_advantages import set_advantages
from fedse.plugins.schedules import Ramp, Scheduled, at
from fedse.types import Lesson, Trajectory

LossType = Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"]
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


@dataclass(frozen=True)
class ClippedRatio:
    """Minus the derivative of -min(r A, clip(r) A) + beta (e^d - d - 1), with r the ratio to the probability with which a
    token was drawn and d the reference's log-probability minus the present one; each token times its share of the mean."""

    loss_type: LossType
    by_sequence: bool
    low: float
    high: float
    beta: float
    imitation: float
    longest: int
    """Agent's tokens of the longest trajectory of the round."""
    tokens_per_batch: float
    """Agent's tokens of the round, by the number of batches."""
    entropy: Covariance | None = None
    entropy_weight: float = 1.0

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        compared = [item for item in batch if not item.example.replayed]
        replayed = sum(len(item.now) for item in batch if item.example.replayed)
        weights: list[Values] = []
        loss, clipped, divergence = 0.0, 0, 0.0
        chosen = iter(self._chosen(compared))
        for item in batch:
            if item.example.replayed:
                weights.append(np.full(len(item.now), self.imitation / replayed))
                loss -= float(item.now.sum()) * self.imitation / replayed
                continue
            share = self._share(item, compared)
            ratio, advantage = np.exp(self._log_ratio(item)), item.example.credit
            counts, held = self._counts(item), next(chosen)
            if self.loss_type == "cispo":
                counts = (ratio <= self.high) | (advantage < 0)
                own = np.minimum(ratio, self.high) * advantage * share
                loss -= float((own * item.now).sum())
            else:
                own = np.where(counts, ratio, 0.0) * advantage * share
                limited = np.minimum(ratio * advantage, np.clip(ratio, 1 - self.low, 1 + self.high) * advantage)
                if self.entropy is not None and self.entropy.way == "clip_cov":
                    own, limited = np.where(held, 0.0, own), np.where(held, 0.0, limited)
                elif self.entropy is not None:
                    # From what the learner itself computed: two computations of the same differ by rounding, in both ways.
                    away_from = self.entropy_weight * held * item.log_ratio
                    own = (ratio * advantage - np.sign(away_from) * self.entropy_weight) * share
                    limited = ratio * advantage - np.abs(away_from)
                loss -= float(limited.sum()) * share
                if self.by_sequence:
                    # Every token moves the one ratio of the trajectory by its part, and the ratio counts for every token.
                    own = np.full(len(own), own.sum() / len(own))
            away = -item.log_ratio
            kl = np.exp(away) - away - 1
            weights.append(own - self.beta * share * (1 - np.exp(away)))
            loss += self.beta * share * float(kl.sum())
            clipped += int((~counts).sum())
            divergence += float(kl.sum())
        tokens = max(1, sum(len(item.now) for item in compared))
        # Tokens were drawn from what they are scored with at first, so their mean surprise is its entropy.
        surprise = -sum(float(item.before.sum()) for item in compared)
        told = {"kl": divergence / tokens, "clipped_share": clipped / tokens, "entropy": surprise / tokens}
        return Weighed(weights, loss, told if compared else {})

    def _counts(self, item: Scored) -> Mask:
        """Tokens whose ratio is within its bounds, on the side on which it has one."""
        ratio = np.exp(self._log_ratio(item))
        if self.entropy is not None and self.entropy.way == "kl_cov":
            return np.ones(len(ratio), dtype=np.bool_)
        return np.asarray(ratio <= 1 + self.high if item.example.credit > 0 else ratio >= 1 - self.low)

    def _chosen(self, compared: Sequence[Scored]) -> list[Mask]:
        if self.entropy is None or not compared:
            return [np.zeros(len(item.now), dtype=np.bool_) for item in compared]
        return self.entropy.chosen(compared, [self._counts(item) for item in compared])

    def _log_ratio(self, item: Scored) -> Values:
        return np.full(len(item.now), item.log_importance.mean()) if self.by_sequence else item.log_importance

    def _share(self, item: Scored, compared: Sequence[Scored]) -> float:
        """Of one token in the mean."""
        if self.loss_type == "grpo":
            return 1.0 / (len(item.now) * len(compared))
        if self.loss_type == "bnpo":
            return 1.0 / sum(len(other.now) for other in compared)
        if self.loss_type == "dr_grpo":
            return 1.0 / (len(compared) * self.longest)
        return 1.0 / self.tokens_per_batch
