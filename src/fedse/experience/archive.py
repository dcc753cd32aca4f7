"""Rows of a buffer that a repeated round is about to replace, kept in a file of their own beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedse.errors import BufferUnusable
from fedse.storage import atomic

_KEYS = {
    "trajectories": "round, world, task, attempt, adapter, content",
    "attempts": "round, world, task, attempt, outcome, score, reward, steps",
}


def last_round(buffer: Path) -> int:
    """The latest round that a buffer knows of, 0 if there was none."""
    if not buffer.exists():
        return 0
    with _explained(buffer), closing(_open(buffer)) as connection:
        found = [connection.execute(f"SELECT MAX(round) FROM {table}").fetchone()[0] for table in _tables(connection)]
    return max((number or 0 for number in found), default=0)


def set_aside(buffer: Path, archive: Path, since: int) -> int:
    """Copy everything of round `since` and later into the archive; returns how many trajectories the buffer has of them.

    What the archive holds already, as after the same round was repeated with the same result, is not copied twice.
    """
    if last_round(buffer) < since:
        return 0
    with (
        atomic.explained(archive),
        _explained(buffer),
        closing(sqlite3.connect(archive, isolation_level=None)) as kept,
    ):
        archive.chmod(0o600)
        kept.execute("ATTACH ? AS buffer", (str(buffer),))
        version = kept.execute("PRAGMA buffer.user_version").fetchone()[0]
        kept.execute("BEGIN IMMEDIATE")
        for table in _tables(kept, "buffer."):
            # A newer fedse may have other columns.
            target = f"{table}_{version}"
            kept.execute(f"CREATE TABLE IF NOT EXISTS {target} AS SELECT * FROM buffer.{table} WHERE 0")
            kept.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS once_{target} ON {target} ({_KEYS[table]})")
            kept.execute(f"INSERT OR IGNORE INTO {target} SELECT * FROM buffer.{table} WHERE round >= ?", (since,))
        count = kept.execute("SELECT COUNT(*) FROM buffer.trajectories WHERE round >= ?", (since,)).fetchone()[0]
        kept.execute("COMMIT")
    return int(count)


def _open(buffer: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{buffer.resolve().as_uri()}?mode=rw", uri=True)


def _tables(connection: sqlite3.Connection, schema: str = "") -> list[str]:
    """An older fedse kept no attempts."""
    there = {name for (name,) in connection.execute(f"SELECT name FROM {schema}sqlite_master WHERE type = 'table'")}
    return [name for name in _KEYS if name in there]


@contextmanager
def _explained(buffer: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise BufferUnusable(f"{buffer} cannot be set aside ({error}); it was left as it is.") from error
