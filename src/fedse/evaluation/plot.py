"""The picture at the end of a run: success and invalid actions over rounds, with intervals, floor and ceiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedse.evaluation.curves import curves
from fedse.runs.reading import RunView
from fedse.storage import atomic

MOST = 12
"""Worlds in a picture."""
COLOURS = [
    *("#3366cc", "#dc6900", "#2a9d5c", "#b0338f", "#7a6a53", "#d4a017"),
    *("#17a2b8", "#c0392b", "#222222", "#8e6bd8", "#e377a2", "#8a9a1a"),
]


def draw_run(run: RunView) -> Path | None:
    """Write success.png into the run's folder; None when matplotlib is not installed or nothing was evaluated."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    drawn = curves(run)
    if not drawn:
        return None
    every = len(drawn)
    drawn = dict(list(drawn.items())[:MOST])
    columns = min(3, len(drawn))
    height = -(-len(drawn) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * height + 0.5), layout="constrained")
    axes = figure.subplots(height, columns, squeeze=False, sharey=True).ravel()
    for axis in axes[len(drawn) :]:
        axis.set_visible(False)
    for axis, colour, (name, rows) in zip(axes, COLOURS * len(drawn), drawn.items(), strict=False):
        _draw_world(axis, colour, name, rows)
    for axis in axes[::columns]:
        axis.set_ylabel("%")
    few = f", the first {MOST} of {every} worlds" if every > MOST else ""
    figure.suptitle(f"{run.path.name}: success on held-out validation tasks, 95 % intervals{few}")
    target = run.path / "success.png"
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target


def _draw_world(axis: Any, colour: str, name: str, rows: list[dict[str, Any]]) -> None:
    rows = [row for row in rows if row["success"] is not None]
    rounds = [row["adapter"] for row in rows]
    axis.fill_between(
        rounds,
        [100 * row["interval"][0] for row in rows],
        [100 * row["interval"][1] for row in rows],
        color=colour,
        alpha=0.18,
        linewidth=0,
    )
    axis.plot(rounds, [100 * row["success"] for row in rows], color=colour, marker="o", markersize=4, label="success")
    axis.plot(
        rounds,
        [100 * (row["invalid"] or 0) for row in rows],
        color="#b03030",
        linestyle=(0, (1, 1.5)),
        linewidth=1.2,
        label="invalid actions",
    )
    for key, style in (("floor", ":"), ("ceiling", "--")):
        if rows and rows[-1][key] is not None:
            axis.axhline(100 * rows[-1][key], color="#888888", linestyle=style, linewidth=1)
            axis.annotate(
                key,
                (0.01, 100 * rows[-1][key]),
                xycoords=("axes fraction", "data"),
                fontsize=7,
                color="#666666",
                ha="left",
                va="bottom",
            )
    axis.legend(loc="best", fontsize=7, frameon=False)
    axis.set_title(name)
    axis.set_xlabel("rounds behind the adapter")
    axis.set_ylim(-2, 108)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.spines[["top", "right"]].set_visible(False)
