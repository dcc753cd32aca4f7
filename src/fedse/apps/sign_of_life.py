"""A file that a process holds as long as it lives. However it ends, it lets go at once, also before it is buried."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO


def sign_of(outcome: Path) -> Path:
    """What the process that writes `outcome` holds as long as it lives."""
    return outcome.with_suffix(".lock")


def hold(path: Path, seconds: float = 10.0) -> IO[str]:
    """Hold the file until what is returned is closed or the process is gone. `BlockingIOError` when another one holds it;
    whoever only looks, as `held` does, holds it for a moment."""
    file = path.open("w")
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.close()
                raise
            time.sleep(0.02)
        else:
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
