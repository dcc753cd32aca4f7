"""The picture of a profile: a bar for each round and evaluation, divided among spans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedse.evaluation.profile import Stretch
from fedse.stopwatch import MEANINGS, REST
from fedse.storage import atomic

_ROOM = 0.04
"""Share of the longest bar that a number in it needs."""


def draw_profile(stretches: Sequence[Stretch], title: str, target: Path) -> Path | None:
    """Write a PNG; None when matplotlib is not installed."""
    try:
        from matplotlib import colormaps
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(9, 0.5 * len(stretches) + 2.4), layout="constrained")
    axis = figure.subplots()
    used = {name for stretch in stretches for name in stretch.spans}
    known = [name for name in MEANINGS if name != REST]
    colours = {
        name: colormaps["tab20"](number % 20) for number, name in enumerate([*known, *sorted(used - {*MEANINGS})])
    }
    longest = max(stretch.seconds for stretch in stretches)
    filled = [0.0] * len(stretches)
    for name in [item for item in (*colours, REST) if item in used]:
        seconds = [stretch.spans.get(name, 0.0) for stretch in stretches]
        axis.barh(range(len(stretches)), seconds, left=filled, color=colours.get(name, "#dddddd"), label=name)
        for row, (begin, width) in enumerate(zip(filled, seconds, strict=True)):
            if width > _ROOM * longest:
                axis.text(begin + width / 2, row, f"{width:.2g}", ha="center", va="center", fontsize=7)
        filled = [begin + width for begin, width in zip(filled, seconds, strict=True)]
    axis.set_yticks(range(len(stretches)), [stretch.name for stretch in stretches])
    axis.invert_yaxis()
    axis.set_xlabel("seconds")
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=6, fontsize=7, frameon=False)
    with atomic.new_file(target) as part:
        figure.savefig(part, dpi=130, format="png")
    return target
