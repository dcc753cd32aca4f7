"""Krum: the one update that is closest to its neighbours (Blanchard and others, arXiv 1703.02757).

    next = adapter_k with the lowest score_k of `multi_krum`

Cost: as `multi_krum`.
Helps: as `multi_krum`, and only where any single honest client is good enough: everything that the others learned is lost.
"""

from __future__ import annotations

from pydantic import Field

from fedse.aggregators.multi_krum import MultiKrum
from fedse.plugins import PluginOptions


class KrumOptions(PluginOptions):
    """Whom to distrust."""

    hostile: int = Field(default=1, ge=0)
    """Clients that may send anything."""


class Krum(MultiKrum):
    """The one update that is closest to its neighbours."""

    Options = KrumOptions  # type: ignore[assignment]

    def __init__(self, hostile: int = 1) -> None:
        super().__init__(hostile, keep=1)
