"""A table model in two factors, so that whole rounds with LoRA pairs run without torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedse.models.table import Table
from fedse.policies.table import TablePolicy
from fedse.types import Adapter, Lesson

A, B = "table.lora_A.weight", "table.lora_B.weight"
ROWS, RANK = 64, 3


class FactoredTable(Table):
    """A table of scores that is the product of two factors, with any number of further pairs added."""

    network = None

    def initial_adapter(self, seed: int) -> Adapter:
        down = np.random.default_rng(seed).standard_normal((RANK, len(self.actions)))
        return Adapter(
            {A: down.astype(np.float32), B: np.zeros((self.rows, RANK), dtype=np.float32)}, {"r": RANK, "lora_alpha": 3}
        )


def table(adapter: Adapter) -> Any:
    return sum(
        adapter.tensors[name.replace("lora_A", "lora_B")].astype(np.float64) @ tensor
        for name, tensor in adapter.tensors.items()
        if "lora_A" in name
    )


class FactoredPolicy(TablePolicy):
    def __init__(self, model: Table) -> None:
        super(TablePolicy, self).__init__(model.chat)
        self.model = model

    def load(self, adapter: Adapter) -> None:
        self._table = table(adapter)


class FactoredLearner:
    """A few gradient steps of every tensor that is not frozen towards the counts of the actions."""

    def __init__(self, model: Table) -> None:
        self.model = model

    def learn(self, lesson: Lesson) -> Any:
        target = np.zeros((self.model.rows, len(self.model.actions)))
        for trajectory in lesson.trajectories:
            for step in trajectory.steps:
                if step.action in self.model.actions:
                    target[self.model.row(step.observation), self.model.actions.index(step.action)] = 3.0
        tensors = {name: tensor.astype(np.float64) for name, tensor in lesson.start.tensors.items()}
        for _ in range(5):
            error = table(Adapter(tensors)) - target
            for down in [name for name in tensors if "lora_A" in name]:
                up = down.replace("lora_A", "lora_B")
                steps = {up: error @ tensors[down].T, down: tensors[up].T @ error}
                for name, step in steps.items():
                    if name not in lesson.start.frozen:
                        tensors[name] = tensors[name] - 0.02 * step
        learned = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
        return Adapter(learned, lesson.start.config), {"loss": float(np.mean(error**2))}
