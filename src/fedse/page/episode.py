"""One trajectory to read: what was said, which tokens the loss counts, what the world looked like."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from fedse.page.catalogue import Row
from fedse.page.shown import Shown
from fedse.types import Step, Trajectory


def episode(shown: Shown, row: Row) -> dict[str, Any]:
    trajectory = shown.catalogue.read(row)
    return {
        **row,
        "digest": trajectory.adapter,
        "rules": trajectory.rules,
        "said": [_step(step) for step in trajectory.steps],
        "closing": trajectory.closing,
        "error": trajectory.error,
        "detail": trajectory.detail,
        "rewards": dict(trajectory.rewards),
        "mask": mask(trajectory),
        **shown.drawings.of(trajectory),
    }


def mask(trajectory: Trajectory) -> list[tuple[int, int]]:
    """The loss mask as lengths: whether the tokens are learned from, and how many follow each other.

    Only explorations and demonstrations are ever learned from; of an evaluation it is what would be.
    """
    return [(int(learned), len(list(same))) for learned, same in groupby(trajectory.train_mask)]


def _step(step: Step) -> dict[str, Any]:
    names = ("observation", "reply", "thought", "action", "valid", "learned", "reward", "hint")
    return {name: getattr(step, name) for name in names}
