"""What is remembered, learned once more beside a round's groups: SPEAR (arXiv 2509.22601).

    A = reward - median of the mean rewards of recent groups

An attempt that was better than its own group is replayed while it is not too old and better than what is usual now. Its
loss is that of the groups, with the ratio to the probability with which it was drawn then. The authors take one median over
all tasks; here each world has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedse.objectives.cases import CreditedExample
from fedse.objectives.clipped_ratio import ClippedRatio
from fedse.objectives.objective import Objective, Scored, Weighed
from fedse.types import Attempt, Purpose, Trajectory


def rescored(
    remembered: Iterable[Trajectory], attempts: Iterable[Attempt], round: int, age: int
) -> list[tuple[Trajectory, float]]:
    """What of earlier rounds is still better than usual, and by how much."""
    rewards: dict[tuple[int, str, str], list[float]] = {}
    for attempt in attempts:
        if attempt.round >= round - age:
            rewards.setdefault((attempt.round, attempt.world, attempt.task), []).append(attempt.reward)
    means = {group: float(np.mean(own)) for group, own in rewards.items()}
    usual = {
        world: float(np.median([mean for (_, other, _), mean in means.items() if other == world]))
        for world in {world for _, world, _ in means}
    }
    return [
        (item, item.reward - usual[item.world])
        for item in remembered
        if item.purpose is Purpose.EXPLORE
        and item.round < round
        and item.reward > means.get((item.round, item.world, item.task), np.inf)
        and item.reward > usual[item.world]
    ]


@dataclass(frozen=True)
class WithReplay(Objective):
    """The loss of groups, and `weight` times that of what is replayed, each summed up by itself."""

    compared: ClippedRatio
    replayed: ClippedRatio
    weight: float

    def refers_to(self, example: CreditedExample, known: bool) -> bool:
        if example.replayed:  # Its own rule weighs it as if it were of this round.
            return self.replayed.refers_to(replace(example, replayed=False), known)
        return self.compared.refers_to(example, known)

    def weigh(self, batch: Sequence[Scored]) -> Weighed:
        fresh = [item for item in batch if not item.example.replayed]
        again = [
            replace(item, example=replace(item.example, replayed=False)) for item in batch if item.example.replayed
        ]
        first, second = self.compared.weigh(fresh), self.replayed.weigh(again)
        own, other = iter(first.weights), iter(second.weights)
        weights = [self.weight * next(other) if item.example.replayed else next(own) for item in batch]
        told = {"replayed_share": len(again) / len(batch), **first.told}
        return Weighed(weights, first.loss + self.weight * second.loss, told)
