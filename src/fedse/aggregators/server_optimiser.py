"""What server optimisers share: the mean change is a gradient, and the server takes a step along it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedse.adapters.packing import pack
from fedse.aggregators.mean import Mean, weighted_mean
from fedse.aggregators.rule import Result
from fedse.protocols import StoredUpdate
from fedse.types import ServerState, Tensors, Vector

Change = npt.NDArray[np.float64]


class ServerOptimiser(Mean):
    """A variant overrides `step`, or `mean_change`. What it remembers is one vector for each name in the server's memory."""

    promises: frozenset[str] = frozenset()

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        broadcast = pack(self.asked(state))
        change, numbers = self.mean_change(broadcast, updates)
        step, memory = self.step(change, state.memory)
        vector = (broadcast + step).astype(np.float32)
        told = {**numbers, "step_norm": float(np.linalg.norm(step))}
        return self.following(state, vector, {**state.memory, **memory}), told

    def mean_change(self, broadcast: Vector, updates: Sequence[StoredUpdate]) -> tuple[Change, dict[str, float]]:
        """What is taken for the gradient, and what the report tells of it."""
        return weighted_mean(updates, self.weights(updates)) - broadcast, {}

    @abstractmethod
    def step(self, change: Change, memory: Tensors) -> tuple[Change, dict[str, Vector]]:
        """How far the adapter moves, and what is remembered of it."""
        raise NotImplementedError


def remembered(memory: Tensors, name: str, like: Change, beginning: float = 0.0) -> Change:
    """A vector of the server's memory; before the first round, all `beginning`."""
    return memory[name].astype(np.float64) if name in memory else np.full_like(like, beginning)
