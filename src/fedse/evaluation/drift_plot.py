"""The picture of drift: a row for each round, a column for each world; success, what was forgotten, and invalid actions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedse.evaluation.forgetting import Forgetting, Remembered
from fedse.evaluation.heat_map import fill
from fedse.storage import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 10.0
"""Points at which the colours of what was forgotten end, at least: a task more or less should look like little."""


def draw_drift(found: Forgetting, title: str, target: Path) -> Path | None:
    """Write a PNG; None when matplotlib is not installed."""
    try:
        figure = drift_figure(found, title)
    except ImportError:
        return None
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target


def drift_figure(found: Forgetting, title: str) -> Figure:
    from matplotlib.figure import Figure

    lines = list(found.lines())
    width, height = 3 * max(1.9, 0.75 * len(found.worlds)) + 2.4, 0.34 * len(lines) + 2.1
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    lost = [[_percent(cell, "forgotten") for cell in line.cells] for line in lines]
    most = max([LEAST, *(abs(value) for line in lost for value in line if value is not None)])
    for axis, name, heading, colours, limits in (
        (axes[0], "success", "success (%)", "viridis", (0.0, 100.0)),
        (axes[1], "forgotten", "forgotten, F (points)\nbelow 0: the best so far", "RdBu_r", (-most, most)),
        (axes[2], "invalid", "invalid actions (%)", "Reds", (0.0, 100.0)),
    ):
        values = [[_percent(cell, name) for cell in line.cells] for line in lines]
        fill(axis, values, colours, limits, _number)
        axis.set_title(heading, fontsize=10)
        axis.set_xticks(range(len(found.worlds)), found.worlds, rotation=30, ha="right")
        _part_rounds(axis, [line.round for line in lines])
    labels = [f"{line.round}, {line.adapter}" if found.learned else str(line.round) for line in lines]
    axes[0].set_yticks(range(len(lines)), labels)
    axes[0].set_ylabel("after round")
    figure.suptitle(title, fontsize=11)
    return figure


def _percent(cell: Remembered | None, name: str) -> float | None:
    value = None if cell is None else getattr(cell, name)
    return None if value is None else 100 * value


def _number(value: float) -> str:
    """As exact as the table: with 40 tasks one of them is 2.5 points.

    >>> _number(-12.5), _number(0.0), _number(26.04)
    ('-12.5', '0', '26')
    """
    return f"{round(value, 1):g}"


def _part_rounds(axis: Any, rounds: list[int]) -> None:
    """A line between what belongs to different rounds."""
    for at, (one, other) in enumerate(pairwise(rounds)):
        if one != other:
            axis.axhline(at + 0.5, color="white", linewidth=2.5)
