"""Success over rounds, collected from a run's reports and evaluations."""

from __future__ import annotations

from typing import Any

from fedse.runs.reading import RunView


def curves(run: RunView) -> dict[str, list[dict[str, Any]]]:
    """Validation rows of each client and world, in the order of the adapters they belong to (0 is the beginning)."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    last = run.last_round() or 0
    for number in range(1, last + 1):
        report = run.report(number)
        if report is not None:
            _collect(found, report["evaluation"]["adapter_of_round"], report["evaluation"]["worlds"])
    for number in range(last + 1):
        evaluation = run.evaluation("validation", number)
        if evaluation is not None:
            _collect(found, number, evaluation["worlds"])
    return {name: [rows[number] for number in sorted(rows)] for name, rows in sorted(found.items())}


def macro(found: dict[str, list[dict[str, Any]]]) -> dict[int, float]:
    """The mean of what was measured of each adapter, in the order of the adapters."""
    measured: dict[int, list[float]] = {}
    for rows in found.values():
        for row in rows:
            if row["success"] is not None:
                measured.setdefault(row["adapter"], []).append(row["success"])
    return {number: sum(measured[number]) / len(measured[number]) for number in sorted(measured)}


def _collect(found: dict[str, dict[int, dict[str, Any]]], number: int, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        name = row["client"] if row["client"] == row["world"] else f"{row['client']}: {row['world']}"
        found.setdefault(name, {})[number] = {**row, "adapter": number}
