"""A file that a process holds as long as it lives. However it ends, it lets go at once, also before it is buried."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


def sign_of(outcome: Path) -> Path:
    """What the process that writes `outcome` holds as long as it lives."""
    return outcome.with_suffix(".lock")


def hold(path: Path) -> IO[str]:
    """Hold the file until what is returned is closed or the process is gone."""
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def held(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
