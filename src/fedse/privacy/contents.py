"""The contents of an update as bytes, field by field: what is weighed before it leaves, and written down when it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from fedse.types import ClientUpdate


def contents(update: ClientUpdate) -> Iterator[tuple[str, tuple[int, ...], bytes]]:
    """Name, shape and bytes of each field that carries something."""
    if update.encoded is not None:
        array = update.encoded.array
        yield "vector", array.shape, np.ascontiguousarray(array).tobytes()
    plain: dict[str, Any] = {
        "layout": update.layout,
        "counts": dict(update.counts),
        "metrics": dict(update.metrics),
        "scores": [asdict(score) for score in update.scores],
    }
    for name, given in update.shared.items():
        for tensor in sorted(given):
            yield f"shared/{name}/{tensor}", given[tensor].shape, np.ascontiguousarray(given[tensor]).tobytes()
    for name, scores in update.probes.items():
        plain[f"probes/{name}"] = [asdict(score) for score in scores]
    for field, content in plain.items():
        yield field, (len(content),), json.dumps(content).encode()
