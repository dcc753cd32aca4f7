"""What an update must satisfy before it may touch the shared adapter. A bad one is refused; the round goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from fedse.adapters.packing import length
from fedse.adapters.plan import part
from fedse.federation.governance import GovernanceOptions
from fedse.plugins import PluginOptions, described
from fedse.types import ClientUpdate, Layout, ServerState, Vector

NOT_FINITE = "of its values are not finite"
NOT_KEPT = f"it is not kept, because some {NOT_FINITE}"
"""What a client says of its own lesson."""
UNCHANGED = "it equals the broadcast adapter: learning changed nothing"


class CheckOptions(PluginOptions):
    """Bounds an update has to keep. Shape, type, finiteness and a change other than zero are always checked."""

    max_ratio: float | None = Field(default=100.0, gt=1)
    """Largest norm of an update's change, as a multiple of what is usual among the clients and in earlier rounds."""

    max_norm: float | None = Field(default=None, gt=0)
    """Largest norm of an update's change against the broadcast adapter."""
    max_value: float | None = Field(default=1e6, gt=0)
    """Largest absolute value of any entry of an adapter, a client's or the shared one."""
    governance: GovernanceOptions | None = None
    """`{}`, or options, to leave sites out that are not trusted for what they send; null trusts all."""


def refusal(update: ClientUpdate, broadcast: Vector, layout: Layout, options: CheckOptions) -> str | None:
    """Why the update cannot be used, or None."""
    vector = update.vector
    if vector is None:
        return None
    if update.layout != layout:
        return "its tensors have other names or shapes than the broadcast adapter"
    if vector.dtype != np.float32:
        return f"its values are {vector.dtype}, not float32"
    if vector.shape != (length(layout),):
        return f"it holds {vector.size} values, the adapter has {length(layout)}"
    if not np.isfinite(vector).all():
        return f"{int((~np.isfinite(vector)).sum())} {NOT_FINITE}"
    norm = float(np.linalg.norm(vector.astype(np.float64) - broadcast))
    if norm == 0.0:
        return UNCHANGED
    if options.max_norm is not None and norm > options.max_norm:
        return f"its change has norm {norm:.4g}, above the bound {options.max_norm:g}"
    largest = float(np.abs(vector).max())
    if options.max_value is not None and largest > options.max_value:
        return f"its largest value is {largest:.4g}, above the bound {options.max_value:g}"
    return None


def unfit(made: Any, before: ServerState, options: CheckOptions) -> str | None:
    """Why an aggregator's result can be neither stored nor broadcast, or None."""
    if not (isinstance(made, tuple | list) and len(made) == 2 and isinstance(made[1], Mapping)):
        return f"it has to return `(state, numbers)`, the latter by name, not {described(made)}"
    following = made[0]
    if not isinstance(following, ServerState):
        return f"the state that it returns has to be a `ServerState`, not {described(following)}"
    if following.round != before.round + 1:
        return f"its state is of round {following.round}, and has to be of round {before.round + 1}"
    held = (*following.adapter.tensors.values(), *following.memory.values())
    if not all(isinstance(tensor, np.ndarray) for tensor in held):
        return "its adapter and its memory have to hold NumPy arrays"
    shared = {name: tensor for name, tensor in following.adapter.tensors.items() if not part(name)}
    if {name: tensor.shape for name, tensor in shared.items()} != {
        name: tensor.shape for name, tensor in before.adapter.tensors.items() if not part(name)
    }:
        return "its tensors have other names or shapes than the broadcast adapter"
    for name, tensor in following.adapter.tensors.items():
        if tensor.dtype != np.float32:
            return f"the values of {name} are {tensor.dtype}, not float32"
        if not np.isfinite(tensor).all():
            return f"{int((~np.isfinite(tensor)).sum())} values of {name} are not finite"
        largest = float(np.abs(tensor).max(initial=0.0))
        if options.max_value is not None and largest > options.max_value:
            return f"the largest value of {name} is {largest:.4g}, above checks.max_value = {options.max_value:g}"
    for name, tensor in following.memory.items():
        if not np.isfinite(tensor).all():
            return f"what it remembers as {name} is not finite"
    return None
