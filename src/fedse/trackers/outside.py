"""What trackers have in common that hand a run to somebody else's library."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from fedse.errors import BadInput, how_to_install


def require(library: str, tracker: str) -> None:
    """Refuse a tracker whose library is not there, before anything is written; its extra has the tracker's name."""
    if find_spec(library) is None:
        raise BadInput(f"trackers: '{tracker}' needs {library}: run {how_to_install(tracker)}, or leave it out.")


def identity(run: Path) -> str:
    """By which a run that goes on is found again among others of the same name; tells nobody where it lies."""
    return hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
