"""The picture of a transfer matrix: a row for each adapter, a column for each world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedse.evaluation.heat_map import fill
from fedse.storage import atomic


def draw_matrix(
    rows: Sequence[str], columns: Sequence[str], shares: Sequence[Sequence[float | None]], title: str, target: Path
) -> Path | None:
    """Write a PNG; None when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(1.3 * len(columns) + 2.6, 0.55 * len(rows) + 1.9), layout="constrained")
    axis = figure.subplots()
    values = [[None if share is None else 100 * share for share in line] for line in shares]
    image = fill(axis, values, "viridis", (0, 100))
    axis.set_xticks(range(len(columns)), columns, rotation=20, ha="right")
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xlabel("played in")
    axis.set_ylabel("adapter of")
    figure.colorbar(image, label="success (%)")
    axis.set_title(title, fontsize=10)
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target
