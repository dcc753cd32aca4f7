"""What a learning rule wants of the agent's tokens: any loss of their log-probabilities is a weighted likelihood.

The gradient of L(log p_1, log p_2, ...) is the sum of dL/d log p_t times the gradient of log p_t. So a rule says how much
each token counts, and one weighted pass, the same for all rules, does the rest. Where a whole distribution is wanted in the
place of a token, other tokens count beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedse.errors import BadInput
from fedse.networks.training.soft_targets import LikelyTokens, SoftTargets
from fedse.objectives.cases import CreditedExample
from fedse.plugins import described, numbers
from fedse.visible import short

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """An example with the log-probability of each of the agent's tokens."""

    example: CreditedExample
    now: Values
    """Under the adapter as it is at this step."""
    before: Values
    """Under the adapter with which the lesson began: the reference. Where the rule does not ask for it (`refers_to`), what
    each token was drawn with stands for it, or `now` where that is not known."""
    taught: LikelyTokens | None = None
    """What the learner's teacher would say in the place of each token, where there is one."""

    @property
    def credits(self) -> Values:
        """Of each token: its reply's, where a rule tells them apart, or the example's."""
        by_token = self.example.by_token
        return np.full(len(self.now), self.example.credit) if by_token is None else by_token

    @property
    def log_ratio(self) -> Values:
        """To the reference."""
        return self.now - self.before

    @property
    def log_importance(self) -> Values:
        """To the probability with which each token was drawn. Where that is not known, the adapter with which the lesson
        began is taken for what drew it."""
        return self.log_ratio if self.example.drawn is None else self.now - self.example.drawn


@dataclass(frozen=True)
class Weighed:
    """How much each token of a batch counts."""

    weights: Sequence[Values]
    """For each example, minus the derivative of the loss by each token's log-probability: above 0 it becomes likelier."""
    loss: float
    told: Mapping[str, float] = field(default_factory=dict)
    """What else the rule measured on this batch."""
    soft: Sequence[SoftTargets] = ()
    """For each example, other tokens that count, where a rule has such. Their loss is added to `loss` by the pass."""


def means(measured: Mapping[str, Values]) -> dict[str, float]:
    """To be told. A batch that has nothing of a kind says nothing about it: a zero would pull the lesson's mean down."""
    return {name: float(values.mean()) for name, values in measured.items() if values.size}


class Objective(Protocol):
    """A rule that needs to know how likely the tokens are. Having the method is enough."""

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        """Of the examples behind one step of the optimiser."""
        ...


@runtime_checkable
class RefersToSome(Protocol):
    """An objective that does not compare everything with the adapter at the beginning of the lesson."""

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        """Whether it wants this one scored under the adapter with which the lesson begins, which costs a pass over it.
        `known`: that very adapter drew it, and its probabilities are stored, so that only rounding would differ."""
        ...


def checked_weights(rule: Objective, batch: Sequence[Scored], weighed: Weighed) -> Weighed:
    """What a rule made of a batch, if there is a weight for each token."""
    owner = f"objective '{type(rule).__name__}'"
    if not isinstance(weighed, Weighed):
        raise BadInput(f"{owner}, `weigh`: it has to return `Weighed`, not {described(weighed)}.")
    weights = list(weighed.weights)
    given, wanted = [np.shape(own) for own in weights], [item.now.shape for item in batch]
    if given != wanted:
        raise BadInput(
            f"{owner}, `weigh`: it has to give an array for each example with a weight for each of its tokens, so the "
            f"shapes {short(wanted)}, not {short(given)}."
        )
    return replace(weighed, weights=weights, told=numbers(weighed.told, owner))
