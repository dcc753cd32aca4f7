"""A client's SQLite file, looked at without being its owner, also on a medium that cannot be written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fedse.errors import BufferUnusable


@contextmanager
def look(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing. Raises `BufferUnusable` for whatever cannot be read."""
    if not path.exists():
        raise BufferUnusable(f"there is no buffer {path}.")
    try:
        with _opened(path) as connection:
            yield connection
    except sqlite3.Error as error:
        raise BufferUnusable(f"{path} is damaged ({error}); it was left as it is.") from error
    except OSError as error:
        raise BufferUnusable(f"{path} cannot be read ({error.strerror}).") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    # Reading a write-ahead log takes files beside it. One that may only read would leave them there, and a medium that
    # cannot be written does not let them be made.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        with TemporaryDirectory() as scratch:
            for beside in (path, path.with_name(f"{path.name}-wal")):
                if beside.exists():
                    shutil.copy(beside, scratch)
            with closing(sqlite3.connect(Path(scratch) / path.name)) as copy:
                yield copy
        return
    with closing(connection):
        yield connection
