"""A matrix as coloured cells with a number in each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def fill(
    axis: Any,
    values: Sequence[Sequence[float | None]],
    colours: str,
    limits: tuple[float, float],
    show: Callable[[float], str] = "{:.0f}".format,
) -> Any:
    """Cells without a value stay empty. Returns the image, for a colour bar."""
    shown = [[float("nan") if value is None else value for value in line] for line in values]
    image = axis.imshow(shown, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    for at_row, line in enumerate(values):
        for at_column, value in enumerate(line):
            if value is not None:
                red, green, blue, _ = image.cmap(image.norm(value))
                dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.55
                colour = "white" if dark else "black"
                axis.text(at_column, at_row, show(value), ha="center", va="center", color=colour, fontsize=9)
    return image
