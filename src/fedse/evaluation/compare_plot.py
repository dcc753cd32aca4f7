"""The picture of a comparison: success over rounds for each world and in the mean, then the mean against what it cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedse.evaluation.comparison import Comparison, Group
from fedse.evaluation.measured import Cost, Measured
from fedse.evaluation.plot import COLOURS
from fedse.storage import atomic

Point = tuple[float, float, float, float]
"""Position, mean, smallest and largest over seeds."""
STYLES: list[tuple[Any, str]] = [
    ("-", "o"),
    ((0, (7, 3)), "s"),
    ((0, (4, 4)), "^"),
    ((0, (1, 1.5)), "D"),
    ((0, (7, 2, 1, 2)), "v"),
    ((0, (3, 5, 1, 5)), "<"),
    ((0, (2, 2)), ">"),
    ((0, (9, 5)), "P"),
]
"""Curves that lie upon each other stay visible."""
AXES: list[tuple[str, Callable[[Cost], float | None]]] = [
    ("thousand tokens sampled while exploring", lambda cost: cost.explored_tokens / 1e3),
    ("seconds of rounds", lambda cost: cost.seconds),
    ("MB of adapters sent", lambda cost: None if cost.bytes is None else cost.bytes / 1e6),
]


def draw_comparison(comparison: Comparison, target: Path) -> Path | None:
    """Write a PNG; None when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    worlds = list(comparison.groups[0].successes)
    panels = [*worlds, "macro"] if len(worlds) > 1 else worlds
    columns = 3
    height = -(-len(panels) // columns) + 1
    figure = Figure(figsize=(4.2 * columns, 3.1 * height + 0.9), layout="constrained")
    axes = figure.subplots(height, columns, squeeze=False, sharey=True)
    flat = list(axes[:-1].ravel())
    for axis, name in zip(flat, panels, strict=False):
        chosen = worlds if name == "macro" else [name]
        _draw(axis, comparison.groups, _rounds, chosen)
        axis.set_title("macro: mean of the worlds" if name == "macro" else name)
        axis.set_xlabel("after round")
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (label, value) in zip(axes[-1], AXES, strict=True):
        _draw(axis, comparison.groups, partial(_spent, value), worlds)
        axis.set_xlabel(label)
    for row in axes:
        row[0].set_ylabel("%")
    handles, labels = flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), fontsize=8, frameon=False)
    figure.suptitle("Success on validation tasks; bands: smallest to largest over seeds; below: macro against cost")
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target


def _rounds(run: Measured, number: int) -> float:
    del run
    return float(number)


def _spent(value: Callable[[Cost], float | None], run: Measured, number: int) -> float | None:
    return value(run.costs[number]) if number in run.costs else None


def _draw(
    axis: Any, groups: Sequence[Group], where: Callable[[Measured, int], float | None], worlds: Sequence[str]
) -> None:
    for index, group in enumerate(groups):
        colour = COLOURS[index % len(COLOURS)]
        dashes, marker = STYLES[index % len(STYLES)]
        points = curve(group.runs, where, worlds)
        if not points:
            continue
        if len(points) == 1:  # A method without rounds: a level to see the others against.
            axis.axhline(100 * points[0][1], color=colour, linestyle="--", linewidth=1.2, label=group.label)
            continue
        at, mean, low, high = ([item[index] for item in points] for index in range(4))
        if len(group.runs) > 1:
            axis.fill_between(
                at, [100 * item for item in low], [100 * item for item in high], color=colour, alpha=0.18, linewidth=0
            )
        axis.plot(
            at,
            [100 * item for item in mean],
            color=colour,
            linestyle=dashes,
            marker=marker,
            markersize=4,
            label=group.label,
        )
    axis.set_ylim(-2, 108)
    axis.spines[["top", "right"]].set_visible(False)


def curve(
    runs: Sequence[Measured], where: Callable[[Measured, int], float | None], worlds: Sequence[str]
) -> list[Point]:
    """Mean success of the worlds after each round that every run of a group measured in all of them."""
    shared = set.intersection(*(set(run.curves[world]) for run in runs for world in worlds))
    points: list[Point] = []
    for number in sorted(shared):
        values = [sum(run.curves[world][number] for world in worlds) / len(worlds) for run in runs]
        places = [place for run in runs if (place := where(run, number)) is not None]
        if len(places) == len(runs):
            points.append((sum(places) / len(places), sum(values) / len(values), min(values), max(values)))
    return points
