"""The library: the adapter that each client sent last, kept with the server's state and handed out with the next task.

It is there only where a mix asks for it (`needs_library`). Clients that are absent, or whose update is refused, keep their
place with what they sent before. Where an aggregator has clients send a part of what they were sent, the rest is as it was
broadcast: every entry is a whole adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedse.adapters.packing import pack, slices
from fedse.adapters.plan import part
from fedse.errors import BadAggregate
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, Library, ServerState, Tensors, Vector

PREFIX = "library/"
"""Of the keys in the server's memory; a client's name follows."""


def library_of(state: ServerState) -> Library:
    """What is handed out with the next task."""
    return {key.removeprefix(PREFIX): vector for key, vector in sorted(_kept(state.memory).items())}


def without_library(state: ServerState) -> ServerState:
    """What an aggregator sees."""
    return replace(state, memory={key: value for key, value in state.memory.items() if not key.startswith(PREFIX)})


def with_library(following: ServerState, before: ServerState, updates: Sequence[StoredUpdate]) -> ServerState:
    """The state after a round, in which those who sent something have their new adapter in the library."""
    if odd := next((name for name in following.adapter.tensors if part(name)), ""):
        raise BadAggregate(
            f"the aggregator broadcasts further ranks beside the shared pair ({odd}), to which no single update belongs: a "
            "mix that needs a library goes with aggregators such as `mean` and `fedexp`."
        )
    new = {f"{PREFIX}{update.client}": _whole(before.adapter, update) for update in updates}
    return replace(following, memory={**following.memory, **_kept(before.memory), **new})


def _kept(memory: Tensors) -> Mapping[str, Vector]:
    return {key: value for key, value in memory.items() if key.startswith(PREFIX)}


def _whole(broadcast: Adapter, update: StoredUpdate) -> Vector:
    vector = update.read()
    own = {name: vector[start:stop].reshape(shape) for name, shape, start, stop in slices(update.layout)}
    return pack(Adapter({**broadcast.tensors, **own}))
