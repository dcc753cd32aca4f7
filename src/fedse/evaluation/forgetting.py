"""Forgetting: by how much success in a world has fallen since its best time, as a matrix of rounds and worlds.

    F(t, world) = max over s < t of success(s, world), minus success(t, world)

Negative where the adapter of round t is the best so far. It is of the probe `drift`, whose tasks are the same every time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fedse.evaluation.measured import world_name
from fedse.runs.reading import RunView

DRIFT = "drift"


class Remembered(NamedTuple):
    """What the adapter of a round does in a world."""

    success: float
    forgotten: float | None
    """None for the first adapter that was measured there."""


def forgetting(run: RunView) -> dict[str, dict[int, Remembered]]:
    """Of each client and world the adapters that were measured, in their order; nothing without the probe."""
    last = run.last_round() or 0
    shares: dict[str, dict[int, float]] = {}
    for number in range(last + 1):
        report = run.report(number + 1) if number < last else None
        told = {client: entry.get("probes", {}) for client, entry in (report or {}).get("clients", {}).items()}
        for measured in (told, (run.evaluation("validation", number) or {}).get("probes", {})):
            for name, share in _shares(measured).items():
                shares.setdefault(name, {})[number] = share
    return {name: _compared(rounds) for name, rounds in sorted(shares.items())}


def _compared(rounds: dict[int, float]) -> dict[int, Remembered]:
    found, best = {}, None
    for number, share in sorted(rounds.items()):
        found[number] = Remembered(share, None if best is None else best - share)
        best = share if best is None else max(best, share)
    return found


def _shares(probes: dict[str, Any]) -> dict[str, float]:
    return {
        world_name(row["client"], row["world"]): row["success"]
        for measured in probes.values()
        for row in measured.get(DRIFT, [])
        if row["success"] is not None
    }
