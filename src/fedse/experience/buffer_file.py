"""What a buffer's file holds, without its trajectories: digests and counts, round by round, and whose token ids they are."""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fedse.storage.database import look

FIRST_LEARNED = "first_learned"
_TABLES = ("trajectories", "attempts")


def contents(path: Path, known: Collection[str] = ()) -> dict[str, str]:
    """Digests of what a buffer holds: `facts`, the rows of each round (`0007`), and the first round that was learned from
    (`learned/0007`). Rounds that are `known` are not read."""
    with look(path) as connection:
        connection.text_factory = bytes
        facts = dict(connection.execute("SELECT name, value FROM facts ORDER BY name"))
        learned = facts.pop(FIRST_LEARNED.encode(), None)
        found = {"facts": _digest([item for fact in facts.items() for item in fact])}
        if learned is not None:
            found[f"learned/{_number(learned):04d}"] = "first"
        present = [table for table in _TABLES if _is_there(connection, table)]
        for round in sorted({number for table in present for number in _rounds(connection, table)}):
            if f"{round:04d}" not in known:
                found[f"{round:04d}"] = _digest(_values(connection, present, round))
        return found


def tokenizer_of(path: Path) -> str:
    """Fingerprint of the tokenizer and chat template whose token ids a buffer holds."""
    with look(path) as connection:
        (found,) = connection.execute("SELECT value FROM facts WHERE name = 'fingerprint'").fetchone()
        return str(found)


def remembered(path: Path) -> set[tuple[int, str, str, int]]:
    """Round, world, task and attempt of all that a buffer holds of a client's own; nothing where there is no buffer yet."""
    if not path.exists():
        return set()
    with look(path) as connection:
        return set(
            connection.execute(
                "SELECT round, world, task, attempt FROM trajectories WHERE purpose <> 'demonstrate'"
            ).fetchall()
        )


def sources(path: Path) -> list[tuple[int, str, str, int]]:
    """Round, world, purpose and number of the trajectories that a buffer holds; nothing where there is no buffer yet."""
    if not path.exists():
        return []
    with look(path) as connection:
        return connection.execute(
            "SELECT round, world, purpose, COUNT(*) FROM trajectories GROUP BY round, world, purpose"
        ).fetchall()


def explored(path: Path) -> list[tuple[int, str, str, int, int]]:
    """Round, world, category, tries and successes of what was attempted from its beginning, without errors of worlds."""
    with look(path) as connection:
        if not _is_there(connection, "attempts"):
            return []
        return connection.execute(
            "SELECT round, world, category, COUNT(*), SUM(outcome = 'success') FROM attempts WHERE outcome <> 'error'"
            " GROUP BY round, world, category ORDER BY world, round, category"
        ).fetchall()


def forget_beginning(path: Path) -> None:
    """Take out what a buffer begins with, of which nothing is noted: it is put in again when a round needs it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM trajectories WHERE round = 0")


def _is_there(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())


def _rounds(connection: sqlite3.Connection, table: str) -> list[int]:
    """Step by step over the index: a buffer may hold a great many rows of few rounds."""
    found: list[int] = []
    (at,) = connection.execute(f"SELECT MIN(round) FROM {table}").fetchone()
    while at is not None:
        found.append(_number(at))
        (at,) = connection.execute(f"SELECT MIN(round) FROM {table} WHERE round > ?", (at,)).fetchone()
    return found


def _values(connection: sqlite3.Connection, tables: Collection[str], round: int) -> Iterator[Any]:
    for table in tables:
        yield table
        rows = connection.execute(f"SELECT * FROM {table} WHERE round = ? ORDER BY world, task, attempt", (round,))
        for row in rows:
            yield from row


def _number(value: Any) -> int:
    # SQLite keeps 0.5 in a column of whole numbers; rounded, its row would be in no round's digest.
    whole = int(value) if isinstance(value, bytes) and value.isdigit() and len(value) <= 18 else value
    if not isinstance(whole, int) or not 0 <= whole < 10**18:
        raise sqlite3.DatabaseError("a round is not a number")
    return whole


def _digest(values: Iterator[Any] | list[Any]) -> str:
    """Of values with their types and lengths: no two different lists have the same."""
    whole = hashlib.sha256()
    for value in values:
        content = _bytes(value)
        whole.update(f"{type(value).__name__}{len(content)}:".encode() + content)
    return whole.hexdigest()


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return struct.pack("<d", value) if isinstance(value, float) else str(value).encode()
