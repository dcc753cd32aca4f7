"""Credit of single replies beside that of the outcome: ADCA, AgentEvolver's self-attribution (arXiv 2511.10395).

    z_j   = label of reply j, standardised over the replies of the group, in which each attempt weighs the same
    z_out = reward of the attempt, standardised over the attempts of the group
    r_j   = alpha z_j, and + z_out for the last reply
    A_j   = r_j + r_j+1 + ... + r_last

The paper asks a language model whether a step was good or bad. Here a reply is bad if the world did not understand its
action, or gave less than nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedse.objectives.cases import Case
from fedse.objectives.groups import Group
from fedse.objectives.objective import Values
from fedse.types import Trajectory

_BASE = 0.2
"""Size of a label, as in the authors' code."""
_EPSILON = 1e-8


def step_cases(groups: Sequence[Group], alpha: float) -> list[Case]:
    """Attempts of groups in which outcomes or labels differ."""
    found = []
    for attempts in groups:
        # Of an episode that its prefix ended there is nothing to learn.
        group = [item for item in attempts if any(step.learned for step in item.steps)]
        labels = [_labels(item) for item in group]
        rewards = np.array([item.reward for item in group])
        if len({*rewards.tolist()}) <= 1 and len({value for own in labels for value in own.tolist()}) <= 1:
            continue
        middle = float(np.mean([own.mean() for own in labels]))
        spread = np.sqrt(np.mean([((own - middle) ** 2).mean() for own in labels]) + _EPSILON)
        outcomes = rewards - rewards.mean()
        if rewards.std() > _EPSILON:
            outcomes = outcomes / rewards.std()
        for item, own, outcome in zip(group, labels, outcomes, strict=True):
            rewarded = alpha * (own - middle) / spread
            rewarded[-1] += outcome
            advantages = rewarded[::-1].cumsum()[::-1]
            found.append(Case((item,), (float(advantages.mean()),), by_step=tuple(advantages.tolist())))
    return found


def _labels(trajectory: Trajectory) -> Values:
    """Of each reply that is learned from."""
    learned = [step for step in trajectory.steps if step.learned]
    return np.array([_BASE if step.valid and step.reward >= 0 else -_BASE for step in learned])
