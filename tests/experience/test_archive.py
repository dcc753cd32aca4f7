"""What a repeated round replaces is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedse.errors import BufferUnusable
from fedse.experience.archive import last_round, set_aside
from fedse.experience.buffer import Buffer


def test_nothing_is_made_where_nothing_would_be_replaced(tmp_path: Path) -> None:
    path, archive = tmp_path / "buffer.sqlite", tmp_path / "archive.sqlite"
    assert last_round(path) == 0 and set_aside(path, archive, 1) == 0
    Buffer(path, "east", "print")
    assert last_round(path) == 0 and set_aside(path, archive, 1) == 0 and not archive.exists()


def test_a_damaged_file_is_left_as_it_is_with_a_sentence(tmp_path: Path) -> None:
    path, archive = tmp_path / "buffer.sqlite", tmp_path / "archive.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(BufferUnusable, match="it was left as it is"):
        set_aside(path, archive, 1)
    assert path.read_bytes().endswith(b"xxx") and not archive.exists()
