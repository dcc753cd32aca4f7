"""Success over rounds, collected from a run's reports and evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedse.runs.reading import RunView

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Of each world, in the order of the adapters."""


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
        if evaluation is not None and not is_of_passed_mean(run, number):
            _collect(found, number, evaluation["worlds"])
    return {name: [rows[number] for number in sorted(rows)] for name, rows in sorted(found.items())}


def is_of_passed_mean(run: RunView, number: int) -> bool:
    """Whether the validation after a round is of the mean of several rounds' adapters, and another round followed, as in a
    run that was extended: what came back is another adapter, which that round measured."""
    return number < (run.last_round() or 0) and "mean_of_last" in (run.evaluation("validation", number) or {})


def from_the_beginning(found: Rows) -> Rows:
    """What was measured of the worlds that were there with the first adapter: a mean over others beside them would change
    with who joins, and not only with what is learned."""
    measured = {name: [row for row in rows if row["success"] is not None] for name, rows in found.items()}
    began = min((rows[0]["adapter"] for rows in measured.values() if rows), default=0)
    return {name: rows for name, rows in measured.items() if rows and rows[0]["adapter"] == began}


def macro(found: Rows) -> dict[int, float]:
    """The mean over the worlds that were there from the beginning, of each adapter with which all of them were measured."""
    compared = from_the_beginning(found)
    shares: dict[int, list[float]] = {}
    for rows in compared.values():
        for row in rows:
            shares.setdefault(row["adapter"], []).append(row["success"])
    return {number: sum(own) / len(own) for number, own in sorted(shares.items()) if len(own) == len(compared)}


def _collect(found: dict[str, dict[int, dict[str, Any]]], number: int, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        name = row["client"] if row["client"] == row["world"] else f"{row['client']}: {row['world']}"
        found.setdefault(name, {})[number] = {**row, "adapter": number}
