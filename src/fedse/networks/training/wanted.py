"""What a lesson wants of the network next. Lessons are generators that yield it and are sent the answer, so that those of
several adapters can be answered by one pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from fedse.networks.training.passes import Importance, Pass
from fedse.networks.training.token_packing import Example
from fedse.stopwatch import during


@dataclass(frozen=True)
class Wanted:
    through: Pass
    """By which it would be answered alone."""
    part: Sequence[Example]
    opening: int


@dataclass(frozen=True)
class ScoresWanted(Wanted):
    """`Pass.log_probabilities`."""

    def alone(self) -> npt.NDArray[np.float32]:
        with during("scoring"):
            return self.through.log_probabilities(self.part, self.opening)


@dataclass(frozen=True)
class GradientWanted(Wanted):
    """`Pass.add_gradient`, without soft targets."""

    importance: Importance

    def alone(self) -> tuple[torch.Tensor, int]:
        return self.through.add_gradient(self.part, self.opening, self.importance)


R = TypeVar("R")
Asking = Generator[ScoresWanted | GradientWanted, Any, R]
"""Part of a lesson, with what comes of it."""


def alone(asking: Asking[R]) -> R:
    """Answer what is wanted, each by its own pass."""
    answer: Any = None
    while True:
        try:
            wanted = asking.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = wanted.alone()
