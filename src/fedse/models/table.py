"""A table in place of a language model: which action to take on which observation. Needs no torch.

With it the complete federated loop runs in seconds, and truly learns, in tests, documents and on a server.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from pydantic import Field

from fedse.models.card import ModelCard
from fedse.models.chat import ByteChat
from fedse.plugins import PluginOptions, read_options
from fedse.types import Adapter

TENSOR = "table"


class Table:
    """Scores of actions for each observation; the adapter is the whole table and starts at zero."""

    class Options(PluginOptions):
        actions: list[str] = Field(default=["move up", "move down", "move left", "move right"], min_length=1)
        """The actions to choose from."""
        rows: int = Field(default=4096, ge=1)
        """Observations are hashed into this many rows."""

    card = ModelCard(parameters=4096 * 4, licence="Apache-2.0")
    context = 1_000_000

    def __init__(self, **options: Any) -> None:
        chosen = read_options(self.Options, f"model {type(self).__name__}", options)
        self.actions = chosen.actions
        self.rows = chosen.rows
        self.chat = ByteChat()

    def row(self, observation: str) -> int:
        return zlib.crc32(observation.encode()) % self.rows

    def initial_adapter(self, seed: int) -> Adapter:
        del seed  # Zeros: every action is equally likely.
        return Adapter({TENSOR: np.zeros((self.rows, len(self.actions)), dtype=np.float32)}, {"peft_type": "TABLE"})
