"""One trajectory to read: what was said, which tokens the loss counts, what the world looked like."""

from __future__ import annotations

from itertools import groupby, islice
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
        "said": [
            {**_step(step), "likelihood": likely}
            for step, likely in zip(trajectory.steps, likelihoods(trajectory), strict=True)
        ],
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


def likelihoods(trajectory: Trajectory) -> list[dict[str, float] | None]:
    """Of each reply, the mean and the least log-probability with which its tokens were drawn; None where it is not known."""
    lengths = [length for learned, length in mask(trajectory) if learned]
    learned = [number for number, step in enumerate(trajectory.steps) if step.learned]
    found: list[dict[str, float] | None] = [None] * len(trajectory.steps)
    if trajectory.log_probs and len(lengths) == len(learned):
        drawn = iter(trajectory.log_probs)
        for number, length in zip(learned, lengths, strict=True):
            own = list(islice(drawn, length))
            found[number] = {"mean": sum(own) / len(own), "least": min(own)}
    return found


def _step(step: Step) -> dict[str, Any]:
    names = ("observation", "reply", "thought", "action", "valid", "learned", "reward", "hint")
    return {name: getattr(step, name) for name in names}
