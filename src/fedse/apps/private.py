"""What hub and site write is for the account that runs them, and for nobody else on the machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedse.storage import atomic

PREFIX = "fedse-"


@contextmanager
def private(*folders: Path) -> Iterator[None]:
    """What this process and its children make is closed to others, and so are these folders."""
    before = os.umask(0o077)
    try:
        for folder in folders:
            with atomic.explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o700)
        yield
    finally:
        os.umask(before)


@contextmanager
def socket_folder(home: Path) -> Iterator[Path]:
    """A folder for the socket of a site. Its path is short: the names of sockets hold about a hundred characters.

    It goes with the site. What a killed site has left goes when it is started again.
    """
    note = home / "socket-folder"
    if note.exists():
        left = Path(note.read_text())
        # Whatever the note says, nothing else is removed.
        if left.name.startswith(PREFIX) and left.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        note.write_text(folder)
        try:
            yield Path(folder)
        finally:
            note.unlink(missing_ok=True)
