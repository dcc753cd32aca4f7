"""Whether sharing holds experts back: the synergy gap of each world.

    gap = (best - shared) / best        best: the most that any single client's adapter reaches in the world

Positive: some client by itself does better there than the adapter that all share; negative: none of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def synergy_gaps(
    cells: Mapping[tuple[str, str], Mapping[str, Any]], shared: str, beginning: str
) -> dict[str, float | None]:
    """Of each world, from cells of (adapter, world); None where nobody reaches anything, empty without a shared adapter."""
    gaps: dict[str, float | None] = {}
    for adapter, world in cells:
        if adapter == shared:
            own = [
                cells[other, at]["success"] for other, at in cells if at == world and other not in (shared, beginning)
            ]
            best = max((success for success in own if success is not None), default=None)
            together = cells[adapter, world]["success"]
            gaps[world] = (best - together) / best if best and together is not None else None
    return gaps
