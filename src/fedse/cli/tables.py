"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def interval(bounds: Any) -> str:
    return f"{100 * bounds[0]:.0f}-{100 * bounds[1]:.0f}"


def evaluation_table(result: Mapping[str, Any], title: str) -> Table:
    """Success of each client and world, beside what a trivial policy and the expert reach on the same tasks."""
    table = Table(title=f"Success (%), {title}", caption=_caption(result), title_justify="left", caption_justify="left")
    for column in ("client", "world"):
        table.add_column(column)
    for column in ("success", "95 %", "floor", "ceiling", "tasks", "steps", "tokens", "invalid %", "errors"):
        table.add_column(column, justify="right")
    for row in result["worlds"]:
        table.add_row(
            row["client"],
            row["world"],
            percent(row["success"]),
            interval(row["interval"]),
            percent(row["floor"]),
            percent(row["ceiling"]),
            str(row["episodes"]),
            _number(row["steps"]),
            _number(row["tokens"]),
            percent(row["invalid"]),
            ", ".join(f"{kind} {count}" for kind, count in row["errors"].items()) or "0",
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _caption(result: Mapping[str, Any]) -> str:
    if result["micro"] is None:
        return "nothing was played to its end"
    return (
        f"macro {percent(result['macro'])}, micro {percent(result['micro'])} "
        f"({interval(result['micro_interval'])}) over {result['episodes']} episodes; greedy, frozen; "
        "steps and tokens are means per episode"
    )
