"""`--split NAME`: one of those that worlds divide their tasks into."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedse.types import Split


def checked_split(wanted: str) -> Split:
    """The split that somebody asked for."""
    from fedse.errors import BadInput
    from fedse.plugins import nearest_or_all
    from fedse.types import SPLITS

    for known in SPLITS:
        if known == wanted:
            return known
    raise BadInput(f"--split {wanted}: {nearest_or_all(wanted, SPLITS, 'Known:')}.")
