"""Trajectories that stay in memory: what is read is what lies in the file now, and memory is bounded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fedse.errors import BufferUnusable
from fedse.experience.buffer import Buffer
from fedse.experience.buffer_rows import KnownRows
from fedse.types import Outcome, Purpose, Trajectory


def played(task: str, *tokens: int) -> Trajectory:
    return Trajectory(
        *("site", "maze", task, Purpose.EXPLORE, 1, 0, "", (), "", Outcome.SUCCESS, 1.0),
        token_ids=tokens,
        train_mask=(True,) * len(tokens),
    )


@pytest.fixture
def buffer(tmp_path: Path) -> Buffer:
    buffer = Buffer(tmp_path / "buffer.sqlite", "site", "tokenizer")
    buffer.remember(1, [played("a", 1, 2), played("b", 3, 4)])
    return buffer


def changed(buffer: Buffer, column: str, value: object) -> None:
    buffer.close()
    with sqlite3.connect(buffer.path) as file:
        file.execute(f"UPDATE trajectories SET {column} = ? WHERE task = 'b'", (value,))


def test_what_is_read_again_is_not_made_again(buffer: Buffer) -> None:
    assert all(first is second for first, second in zip(buffer.read(1), buffer.read(1), strict=True))


def test_a_row_that_was_damaged_after_it_was_read_is_refused(buffer: Buffer) -> None:
    assert len(buffer.read(1)) == 2
    changed(buffer, "token_ids", b"\x07\0\0\0\x08\0\0\0")
    with pytest.raises(BufferUnusable, match="token ids do not fit"):
        buffer.read(1)


def test_a_record_that_was_changed_after_it_was_read_is_read_as_it_is_now(buffer: Buffer) -> None:
    before = buffer.read(1)
    record = sqlite3.connect(buffer.path).execute("SELECT record FROM trajectories WHERE task = 'b'").fetchone()[0]
    changed(buffer, "record", record.replace('"score": 1.0', '"score": 0.5'))
    after = buffer.read(1)
    assert [item.score for item in before] == [1.0, 1.0]
    assert sorted(item.score for item in after) == [0.5, 1.0]


def test_memory_holds_no_more_tokens_than_it_may() -> None:
    known, rows = KnownRows(most_tokens=5), [(name, b"", b"", "") for name in "abc"]
    for row, trajectory in zip(rows, [played("a", 1, 2), played("b", 3, 4), played("c", 5, 6)], strict=True):
        known.keep(row, trajectory)
    assert [known.get(row) is not None for row in rows] == [False, False, True]
