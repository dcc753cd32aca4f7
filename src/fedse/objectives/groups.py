"""Attempts at the same task, failures included, and what each is worth beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from fedse.types import Outcome, Trajectory

Scale = Literal["group", "batch", "none", "mean"]
Group = list[Trajectory]
_EPSILON = 1e-4
"""Added to what rewards are divided by, as in TRL."""


def groups_of(trajectories: Iterable[Trajectory]) -> list[Group]:
    """In the order in which their tasks were first tried. Equal attempts stay: a mean without them would be another."""
    found: dict[tuple[str, str], Group] = {}
    for trajectory in trajectories:
        found.setdefault((trajectory.world, trajectory.task), []).append(trajectory)
    return list(found.values())


def differ(group: Group) -> bool:
    """Whether there is anything to tell its attempts apart by."""
    return len({trajectory.reward for trajectory in group}) > 1


def uniform_share(groups: Sequence[Group]) -> float:
    """Share of the groups whose attempts are all worth the same, which teach nothing by comparison."""
    return sum(not differ(group) for group in groups) / len(groups) if groups else 0.0


def solved_share(groups: Sequence[Group]) -> float:
    """Share of the tasks that one of their attempts solved: pass@k, with as many attempts as there were."""
    solved = [any(item.outcome is Outcome.SUCCESS for item in group) for group in groups]
    return sum(solved) / len(solved) if solved else 0.0


def advantages(groups: Sequence[Group], scale: Scale) -> list[tuple[Trajectory, float]]:
    """How much better each attempt is than the mean of its group, for groups that have a difference.

    `scale` is what the difference is divided by: the standard deviation within the group (GRPO) or over all attempts, the
    group's mean, which weighs rare successes up (MaxRL, arXiv 2602.02710), or nothing (Dr. GRPO, arXiv 2503.20783).
    """
    rewards = [np.array([trajectory.reward for trajectory in group]) for group in groups]
    over_all = float(np.std(np.concatenate(rewards), ddof=1)) if sum(map(len, rewards)) > 1 else 0.0
    found: list[tuple[Trajectory, float]] = []
    for group, own in zip(groups, rewards, strict=True):
        if differ(group):
            divisor = {
                "group": float(np.std(own, ddof=1)) + _EPSILON,
                "batch": over_all + _EPSILON,
                "mean": float(own.mean()) + _EPSILON,
                "none": 1.0,
            }[scale]
            found += zip(group, ((own - own.mean()) / divisor).tolist(), strict=True)
    return found


def win_advantages(groups: Sequence[Group]) -> list[tuple[Trajectory, float]]:
    """How far the win share of each attempt is from one half, for groups that have a difference."""
    return [
        (item, share - 0.5)
        for group in groups
        if differ(group)
        for item, share in zip(group, win_shares(group), strict=True)
    ]


def win_shares(group: Group) -> list[float]:
    """Share of the other attempts that each one beats; one that is worth the same counts half."""
    rewards = np.array([trajectory.reward for trajectory in group])
    better = (rewards[:, None] > rewards).sum(axis=1) + 0.5 * ((rewards[:, None] == rewards).sum(axis=1) - 1)
    return [float(value) for value in better / max(1, len(group) - 1)]
