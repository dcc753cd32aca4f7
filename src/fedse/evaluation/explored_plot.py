"""The picture of what was explored: for each run, client and world, the share of each category in every round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedse.errors import BadInput
from fedse.storage import atomic

MOST = 24
"""Panels in a picture."""
_COLUMNS = 5


class Tries(NamedTuple):
    """Of one category in one round."""

    run: str
    client: str
    round: int
    world: str
    category: str
    tries: int
    successes: int

    @property
    def place(self) -> tuple[str, str, str]:
        return self.run, self.client, self.world


def by_ease(rows: Sequence[Tries]) -> list[str]:
    """Categories, those first of which most attempts succeeded.

    >>> by_ease([Tries("r", "c", 1, "w", "far", 4, 1), Tries("r", "c", 1, "w", "near", 2, 1)])
    ['near', 'far']
    """
    names = dict.fromkeys(row.category for row in rows)
    own = {name: [row for row in rows if row.category == name] for name in names}
    return sorted(own, key=lambda name: -sum(row.successes for row in own[name]) / sum(row.tries for row in own[name]))


def draw_explored(rows: Sequence[Tries], target: Path) -> Path | None:
    """Write a PNG; None when matplotlib is not installed."""
    panels = list(dict.fromkeys(row.place for row in rows))
    if not 0 < len(panels) <= MOST:
        raise BadInput(
            f"a picture has 1 to {MOST} panels, one for each run, client and world, and this one would have {len(panels)}: "
            "name fewer runs, or take one client with --client."
        )
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError:
        return None
    order = by_ease(rows)
    colours = {name: colormaps["viridis"](0.95 - 0.9 * at / max(1, len(order) - 1)) for at, name in enumerate(order)}
    columns = min(_COLUMNS, len(panels))
    height = -(-len(panels) // columns)
    figure = Figure(figsize=(max(2.6 * columns, 4.0), 2.4 * height + 0.7), layout="constrained")
    axes = figure.subplots(height, columns, squeeze=False, sharey=True).ravel()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, place in zip(axes, panels, strict=False):
        _draw(axis, [row for row in rows if row.place == place], order, colours)
        axis.set_title(", ".join(dict.fromkeys(place)), fontsize=8)
    for axis in axes[::columns]:
        axis.set_ylabel("% of attempts")
    named = {line[1]: line[0] for axis in axes for line in zip(*axis.get_legend_handles_labels(), strict=True)}
    shown = [name for name in order if (name or "all") in named]
    labels = [name or "all" for name in shown]
    figure.legend(
        *([named[label] for label in labels], labels), loc="outside lower center", ncols=8, fontsize=8, frameon=False
    )
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target


def _draw(axis: Any, rows: Sequence[Tries], order: Sequence[str], colours: dict[str, Any]) -> None:
    rounds = sorted({row.round for row in rows})
    tries = {(row.round, row.category): row.tries for row in rows}
    total = {number: sum(row.tries for row in rows if row.round == number) for number in rounds}
    filled = [0.0] * len(rounds)
    for name in order:
        if any((number, name) in tries for number in rounds):
            shares = [100 * tries.get((number, name), 0) / total[number] for number in rounds]
            axis.bar(rounds, shares, bottom=filled, width=0.9, color=colours[name], label=name or "all")
            filled = [below + share for below, share in zip(filled, shares, strict=True)]
    axis.set_xlabel("round")
    axis.set_ylim(0, 100)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.spines[["top", "right"]].set_visible(False)
