"""An update in memory, where there is one at a time or few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedse.types import Layout, Vector


@dataclass(frozen=True)
class HeldUpdate:
    """A packed adapter, with the counts that its client sends."""

    client: str
    layout: Layout
    vector: Vector
    counts: Mapping[str, int] = field(default_factory=dict)

    def read(self, start: int = 0, stop: int | None = None) -> Vector:
        return self.vector[start:stop].copy()
