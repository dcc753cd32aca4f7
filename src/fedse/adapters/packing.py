"""One flat float32 vector in sorted name order: the form in which an adapter crosses between server and client.

Every engine goes through it, the local one too. Otherwise the order of a dictionary could change a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from fedse.types import Adapter, Layout, Vector


def pack(adapter: Adapter) -> Vector:
    if not adapter.tensors:
        return np.zeros(0, dtype=np.float32)
    return np.concatenate([adapter.tensors[name].ravel() for name, _ in adapter.layout]).astype(np.float32, copy=False)


def unpack(vector: Vector, layout: Layout, config: Mapping[str, Any]) -> Adapter:
    tensors = {name: vector[start:stop].reshape(shape).copy() for name, shape, start, stop in slices(layout)}
    return Adapter(tensors, config)


def views(vector: Vector, layout: Layout) -> dict[str, Vector]:
    """The tensors of a packed adapter that many read and nobody writes to: without a copy."""
    fixed = vector.view()
    fixed.flags.writeable = False
    return {name: fixed[start:stop].reshape(shape) for name, shape, start, stop in slices(layout)}


def slices(layout: Layout) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
    """Name, shape, start and stop of each tensor in the packed vector."""
    start = 0
    for name, shape in layout:
        stop = start + prod(shape)
        yield name, shape, start, stop
        start = stop


def length(layout: Layout) -> int:
    return sum(prod(shape) for _, shape in layout)


def modules(layout: Layout) -> list[dict[str, tuple[tuple[int, ...], int, int]]]:
    """The tensors that belong together, as `{"A": (shape, start, stop), "B": ...}` for a LoRA pair.

    A tensor without a partner is a module of its own under the key "".
    """
    found: dict[str, dict[str, tuple[tuple[int, ...], int, int]]] = {}
    for name, shape, start, stop in slices(layout):
        stem, factor = name, ""
        for letter in ("A", "B"):
            if f".lora_{letter}." in name:
                stem, factor = name.replace(f".lora_{letter}.", ".lora_*."), letter
        found.setdefault(stem, {})[factor] = (shape, start, stop)
    return list(found.values())
