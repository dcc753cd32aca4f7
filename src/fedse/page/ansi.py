"""A world's drawing, which is coloured for terminals, as pieces of plain text with the names of their colours."""

from __future__ import annotations

import re
from functools import lru_cache

from fedse.visible import visible

_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_CLASSES = {
    1: "bold",
    **{base + number: f"{place}{number}" for base, place in ((30, "fg"), (40, "bg")) for number in range(8)},
    **{base + number: f"{place}{number + 8}" for base, place in ((90, "fg"), (100, "bg")) for number in range(8)},
}

Piece = tuple[str, str]
"""A text and the classes it has, with spaces between them."""


@lru_cache(maxsize=256)
def pieces(drawing: str) -> tuple[Piece, ...]:
    """Colours are understood; whatever else a text asks of a terminal is shown and not obeyed.

    >>> pieces("a \\x1b[1;32mstar\\x1b[0m \\x1b[2J")
    (('a ', ''), ('star', 'bold fg2'), (' \\\\x1b[2J', ''))
    """
    found: list[Piece] = []
    classes: list[str] = []
    for place, part in enumerate(_CODE.split(drawing)):
        if place % 2:
            for code in part.split(";"):
                number = int(code[:4] or 0)
                classes = [*classes, _CLASSES[number]] if number in _CLASSES else [] if number == 0 else classes
        elif part:
            _append(found, visible(part), " ".join(classes))
    return tuple(found)


def _append(found: list[Piece], text: str, classes: str) -> None:
    """Neighbours of one colour are one piece, and so are spaces that have none: a map is hundreds of cells."""
    before = found[-1][1] if found else ""
    is_blank = not text.strip() and "bg" not in classes + before
    if found and (classes == before or is_blank):
        found[-1] = (found[-1][0] + text, before)
    else:
        found.append((text, classes))
