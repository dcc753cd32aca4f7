"""Answers with the action that a table holds for the last observation, drawn by softmax of its scores."""

from __future__ import annotations

import numpy as np

from fedse.errors import BadInput
from fedse.models.table import TENSOR, Table
from fedse.policies.scripted import ScriptedPolicy
from fedse.types import Adapter, Vector


class TablePolicy(ScriptedPolicy):
    """The policy that belongs to the model `table`."""

    def __init__(self, model: Table) -> None:
        if not isinstance(model, Table):
            raise BadInput("policy: 'table' works with the model 'table' only; use 'transformer' for a language model.")
        super().__init__(model.chat)
        self.model = model
        self._table: Vector = model.initial_adapter(0).tensors[TENSOR]

    def load(self, adapter: Adapter) -> None:
        self._table = adapter.tensors[TENSOR]

    def answer(self, turn: str, draw: float, temperature: float) -> str:
        scores = self._table[self.model.row(turn)].astype(np.float64)
        if temperature == 0:
            choice = int(scores.argmax())
        else:
            weights = np.exp((scores - scores.max()) / temperature)
            choice = int(np.searchsorted(np.cumsum(weights) / weights.sum(), draw, side="right"))
        action = self.model.actions[min(choice, len(self.model.actions) - 1)]
        return f"Thought: I have seen this before.\nAction: {action}"
