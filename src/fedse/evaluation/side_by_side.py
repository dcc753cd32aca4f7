"""What each client had learned in a round beside what it entered the next one with, on the same validation tasks: where the
second is lower, aggregation took away what the client had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedse.evaluation.measured import world_name
from fedse.runs.reading import RunView

AFTER_LEARNING, AS_BROADCAST = "after_learning", "as_broadcast"
"""Names under which clients tell what they reach with what they have learned, and with what they enter a round."""


class SideBySide(NamedTuple):
    """Shares of the same tasks."""

    after_learning: float
    as_broadcast: float | None
    """None where the adapter that the round made was not measured at this client."""

    @property
    def change(self) -> float | None:
        return None if self.as_broadcast is None else self.as_broadcast - self.after_learning


def side_by_side(run: RunView) -> dict[str, dict[int, SideBySide]]:
    """Of each client and world the rounds in which it learned; nothing where the experiment does not ask for it."""
    found: dict[str, dict[int, SideBySide]] = {}
    for number in range(1, (run.last_round() or 0) + 1):
        came_back = _shares(_probes(run.evaluation("validation", number)), AS_BROADCAST)
        came_back |= _shares(_of_clients(run.report(number + 1)), AS_BROADCAST)
        for name, share in _shares(_of_clients(run.report(number)), AFTER_LEARNING).items():
            found.setdefault(name, {})[number] = SideBySide(share, came_back.get(name))
    return dict(sorted(found.items()))


def mean_change(rounds: Mapping[int, SideBySide]) -> float | None:
    """Over the rounds in which both were measured."""
    changes = [pair.change for pair in rounds.values() if pair.change is not None]
    return sum(changes) / len(changes) if changes else None


def _of_clients(report: dict[str, Any] | None) -> dict[str, Any]:
    return {client: entry.get("probes", {}) for client, entry in (report or {}).get("clients", {}).items()}


def _probes(evaluation: dict[str, Any] | None) -> dict[str, Any]:
    if evaluation is None or "mean_of_last" in evaluation:
        return {}  # Of another adapter than the one that comes back.
    found: dict[str, Any] = evaluation.get("probes", {})
    return found


def _shares(probes: dict[str, Any], name: str) -> dict[str, float]:
    return {
        world_name(row["client"], row["world"]): row["success"]
        for measured in probes.values()
        for row in measured.get(name, [])
        if row["success"] is not None
    }
