"""The report of a round: what happened, in numbers, and as the JSON that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedse.evaluation.metrics import row, summarise
from fedse.federation.client_status import client_status
from fedse.types import ClientUpdate


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round, in numbers. The scores belong to the adapter that entered it."""

    round: int
    adapter: str
    updates: tuple[ClientUpdate, ...]
    """As received, without their vectors."""
    refused: Mapping[str, str]
    diagnostics: Mapping[str, Any]
    seconds: float
    absent: Mapping[str, str] = field(default_factory=dict)
    """Clients that were asked and whose answer was not there when the round closed, each with the reason."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each client's adapter as they crossed."""
    broadcast: int = 0
    """Bytes of the adapter that each client was sent."""
    library: int = 0
    """Bytes of the others' adapters that each client was sent with it."""
    late: int = 0
    """Updates of earlier rounds that arrived in this one and were dropped."""


def to_json(report: RoundReport) -> Mapping[str, Any]:
    """A report with the summary of its scores, which belong to the adapter that entered the round."""
    scores = [(update.client, score) for update in report.updates for score in update.scores]
    contributed = set(report.diagnostics.get("contributed", []))
    clients = {
        update.client: {
            "sent": update.client in contributed,
            "state": client_status(update, update.client in contributed, update.client in report.refused),
            "counts": dict(update.counts),
            "metrics": dict(update.metrics),
            **({"probes": rows_of(update)} if update.probes else {}),
            "bytes": report.sent.get(update.client, 0),
        }
        for update in report.updates
    }
    return {
        "round": report.round,
        "adapter": report.adapter,
        "seconds": round(report.seconds, 3),
        "broadcast_bytes": report.broadcast,
        **({"library_bytes": report.library} if report.library else {}),
        "clients": clients,
        "refused": dict(report.refused),
        "absent": dict(report.absent),
        "late": report.late,
        "diagnostics": dict(report.diagnostics),
        "evaluation": {"adapter_of_round": report.round - 1, **summarise(scores)},
    }


def rows_of(update: ClientUpdate) -> dict[str, Any]:
    """What further probes of a client measured."""
    return {name: [row(update.client, score) for score in scores] for name, scores in update.probes.items()}
