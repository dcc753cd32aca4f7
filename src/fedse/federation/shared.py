"""What plug-ins of clients tell each other: the server keeps the mean of what was given, by name, with its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fedse.types import ClientUpdate, ServerState, Shared, Tensors, Vector

PREFIX = "shared/"
"""Of the keys in the server's memory; all others are the aggregator's."""


def shared_of(state: ServerState) -> Shared:
    """What is handed out with the next task."""
    found: dict[str, dict[str, Vector]] = {}
    for key, tensor in _shared(state.memory).items():
        _, name, tensor_name = key.split("/")
        found.setdefault(name, {})[tensor_name] = tensor
    return found


def without_shared(state: ServerState) -> ServerState:
    """What an aggregator sees."""
    return replace(state, memory={key: value for key, value in state.memory.items() if not key.startswith(PREFIX)})


def with_shared(state: ServerState, before: Tensors, updates: Iterable[ClientUpdate]) -> ServerState:
    """The state with the mean of what the updates give. A name that nobody gave keeps what it had; what is not finite, or
    has another shape than what was there or came first, is left out."""
    given: dict[str, list[Vector]] = {}
    for update in sorted(updates, key=lambda update: update.client):
        for name, tensors in update.shared.items():
            for key, tensor in tensors.items():
                alike = given.setdefault(f"{PREFIX}{name}/{key}", [])
                known = before.get(f"{PREFIX}{name}/{key}", alike[0] if alike else tensor)
                if tensor.shape == known.shape and np.isfinite(tensor).all():
                    alike.append(tensor)
    merged = {
        key: np.mean(np.stack(tensors).astype(np.float64), axis=0).astype(np.float32)
        for key, tensors in given.items()
        if tensors
    }
    return replace(state, memory={**state.memory, **_shared(before), **merged})


def _shared(memory: Tensors) -> Mapping[str, Vector]:
    return {key: value for key, value in memory.items() if key.startswith(PREFIX)}
