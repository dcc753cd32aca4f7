"""What plug-ins of clients tell each other: the server keeps the mean of what was given, by name, with its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fedse.types import ClientUpdate, ServerState, Shared, Tensors, Vector

PREFIX = "shared/"
"""Of the keys in the server's memory; all others are the aggregator's."""
MOST_VALUES = 1_000_000
"""That one client may share under one name."""


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


def with_shared(
    state: ServerState, before: Tensors, updates: Iterable[ClientUpdate], names: frozenset[str]
) -> ServerState:
    """The state with the mean of what the updates give. A name that nobody gave keeps what it had; names that no plug-in of
    the experiment has, what is not finite, too much, or of another shape than most of the others, is left out."""
    given: dict[str, list[Vector]] = {}
    for update in sorted(updates, key=lambda update: update.client):
        for name in names & update.shared.keys():
            tensors = update.shared[name]
            if sum(tensor.size for tensor in tensors.values()) <= MOST_VALUES:
                for key, tensor in tensors.items():
                    given.setdefault(f"{PREFIX}{name}/{key}", []).append(tensor)
    merged = {}
    for key, tensors_of in given.items():
        shape, _ = Counter(tensor.shape for tensor in tensors_of).most_common(1)[0]
        alike = [tensor for tensor in tensors_of if tensor.shape == shape and np.isfinite(tensor).all()]
        if alike:
            merged[key] = np.asarray(np.mean(np.stack(alike).astype(np.float64), axis=0), dtype=np.float32)
    return replace(state, memory={**state.memory, **_shared(before), **merged})


def _shared(memory: Tensors) -> Mapping[str, Vector]:
    return {key: value for key, value in memory.items() if key.startswith(PREFIX)}
