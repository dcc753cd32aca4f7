"""WebRL's replay (arXiv 2411.02337): of old replies, those that the policy neither knows by heart nor finds strange.

    familiarity of a reply = (product of the probabilities of its n tokens)^(1 / n)

Probabilities are those of the adapter with which the lesson begins; one over the familiarity is the reply's perplexity. A
reply of an earlier round counts if its familiarity is above 0.5 and at most 0.95; all replies of this round count. The loss
is the mean of -log p over the tokens that count. The paper's code also takes one success of each task only, and at most
twice as many old replies as new ones; here the limits of the buffer are there for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedse.networks.training.token_packing import Example
from fedse.objectives.cases import CreditedExample
from fedse.objectives.objective import Objective, Scored, Values, Weighed


def replies(example: Example) -> npt.NDArray[np.int64]:
    """Of each of the agent's tokens, to which reply it belongs."""
    places = np.flatnonzero(example.train[1:])
    return np.cumsum(np.diff(places, prepend=places[:1]) > 1)


def familiarity(example: Example, log_probs: Values) -> Values:
    """Of each of the agent's tokens, that of its reply."""
    number = replies(example)
    means = np.bincount(number, log_probs) / np.bincount(number)
    return np.asarray(np.exp(means)[number])


@dataclass(frozen=True)
class FamiliarReplay(Objective):
    """The mean likelihood of what is new and of old replies within a band of familiarity."""

    lowest: float
    highest: float

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        del known  # Bounds are sharp, and rounding could cross one.
        return example.replayed

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        counted = [self.counts(item) for item in batch]
        tokens = max(1, sum(int(own.sum()) for own in counted))
        weights = [own / tokens for own in counted]
        loss = -sum(float(own @ item.now) for own, item in zip(weights, batch, strict=True))
        old = [_by_reply(item.example, own) for item, own in zip(batch, counted, strict=True) if item.example.replayed]
        return Weighed(weights, loss, {"familiar_share": float(np.concatenate(old).mean())} if old else {})

    def counts(self, item: Scored) -> npt.NDArray[np.bool_]:
        """Which of the agent's tokens are learned."""
        if not item.example.replayed:
            return np.ones(len(item.now), dtype=np.bool_)
        found = familiarity(item.example, item.before)
        return np.asarray((found > self.lowest) & (found <= self.highest))


def _by_reply(example: Example, counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The same of each reply."""
    return counted[np.unique(replies(example), return_index=True)[1]]
