"""The picture at the end of a run: success and invalid actions over rounds, with intervals, floor and ceiling, and macro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedse.evaluation.curves import curves, from_the_beginning, macro
from fedse.runs.reading import RunView
from fedse.storage import atomic

MOST = 12
"""Worlds in a picture."""
COLOURS = [
    *("#3366cc", "#dc6900", "#2a9d5c", "#b0338f", "#7a6a53", "#d4a017"),
    *("#17a2b8", "#c0392b", "#222222", "#8e6bd8", "#e377a2", "#8a9a1a"),
]
FEWER = "measured on fewer tasks"
HOLLOW: Any = {"color": "black", "marker": "o", "linestyle": "", "markerfacecolor": "white"}


def draw_run(run: RunView) -> Path | None:
    """Write success.png into the run's folder; None when matplotlib is not installed or nothing was evaluated."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    found = curves(run)
    if not found:
        return None
    drawn = dict(list(found.items())[:MOST])
    panels = len(drawn) + (len(found) > 1)
    columns = 2 if panels == 4 else min(3, panels)
    height = -(-panels // columns)
    figure = Figure(figsize=(max(4.2 * columns, 6.5), 3.2 * height + 1.0), layout="constrained")
    axes = figure.subplots(height, columns, squeeze=False, sharey=True).ravel()
    for axis in axes[panels:]:
        axis.set_visible(False)
    for axis, colour, (name, rows) in zip(axes, COLOURS * len(drawn), drawn.items(), strict=False):
        _draw_world(axis, colour, name, [row for row in rows if row["success"] is not None])
    if len(found) > 1:
        _draw_macro(axes[panels - 1], found)
    for axis in axes[:panels]:
        _finish(axis)
    for axis in axes[::columns]:
        axis.set_ylabel("%")
    few = f", the first {MOST} of {len(found)} worlds" if len(found) > MOST else ""
    figure.suptitle(f"{run.path.name}: success on held-out validation tasks, 95 % intervals{few}")
    _draw_legend(figure, axes[:panels])
    target = run.path / "success.png"
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target


def _draw_world(axis: Any, colour: str, name: str, rows: list[dict[str, Any]]) -> None:
    rounds = [row["adapter"] for row in rows]
    axis.fill_between(
        rounds,
        [100 * row["interval"][0] for row in rows],
        [100 * row["interval"][1] for row in rows],
        color=colour,
        alpha=0.18,
        linewidth=0,
    )
    axis.plot(rounds, [100 * row["success"] for row in rows], color=colour, label="success")
    most = max((row["episodes"] for row in rows), default=0)
    whole = [row["episodes"] == most for row in rows]
    _draw_points(axis, colour, rounds, [100 * row["success"] for row in rows], whole)
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
            axis.axhline(100 * rows[-1][key], color="#888888", linestyle=style, linewidth=1, label=key)
    axis.set_title(name if len(set(whole)) < 2 else f"{name} ({_span(rows)} tasks)")


def _draw_macro(axis: Any, found: dict[str, list[dict[str, Any]]]) -> None:
    points, compared = macro(found), from_the_beginning(found)
    played = {
        number: sum(row["episodes"] for rows in compared.values() for row in rows if row["adapter"] == number)
        for number in points
    }
    whole = [played[number] == max(played.values()) for number in points]
    values = [100 * value for value in points.values()]
    axis.plot(list(points), values, color="black", linewidth=2, label="success")
    _draw_points(axis, "black", list(points), values, whole)
    later = sum(any(row["success"] is not None for row in rows) for rows in found.values()) - len(compared)
    without = f"\nwithout {later} first measured later" if later else ""
    axis.set_title(f"macro: mean of the worlds{without}", fontweight="bold")


def _draw_points(axis: Any, colour: str, rounds: list[int], values: list[float], whole: list[bool]) -> None:
    """Hollow where fewer tasks were played: such a point moves more by chance."""
    for wanted, face, label in ((True, colour, "_"), (False, "white", FEWER)):
        at = [number for number, each in enumerate(whole) if each is wanted]
        if at:
            axis.plot(
                [rounds[number] for number in at],
                [values[number] for number in at],
                color=colour,
                markerfacecolor=face,
                marker="o",
                markersize=5,
                linestyle="",
                label=label,
            )


def _span(rows: list[dict[str, Any]]) -> str:
    counts = [row["episodes"] for row in rows]
    return f"{min(counts)} or {max(counts)}" if len(set(counts)) == 2 else f"{min(counts)} to {max(counts)}"


def _finish(axis: Any) -> None:
    axis.set_xlabel("after round")
    axis.set_ylim(-2, 108)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.spines[["top", "right"]].set_visible(False)


def _draw_legend(figure: Any, axes: Any) -> None:
    """One for all panels, below them, where it covers nothing."""
    from matplotlib.lines import Line2D

    entries: dict[str, Any] = {}
    for axis in axes:
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, line)
    # Curves have a colour for each world: in the legend they have none.
    plain = {"success": Line2D([], [], color="black"), FEWER: Line2D([], [], **HOLLOW)}
    lines = [plain.get(label, line) for label, line in entries.items()]
    figure.legend(lines, list(entries), loc="outside lower center", ncols=len(entries), fontsize=8, frameon=False)
