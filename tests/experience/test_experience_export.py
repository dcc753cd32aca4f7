"""Trajectories for other tools, and the journal: what is written reads back as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedse.errors import BadInput, CannotWrite
from fedse.experience.export import export
from fedse.experience.journal import Journal
from fedse.experience.records import FORMAT, from_record, to_record
from fedse.types import Outcome, Purpose, Step, Trajectory

PLAYED = [
    Trajectory(
        client="site",
        world="maze",
        task=f"t{number}",
        purpose=Purpose.EXPLORE,
        round=number,
        attempt=1,
        adapter="digest",
        steps=tuple(Step("seen\r\nä\u2028", "Thought: 漢\nAction: go", "漢", "go", True) for _ in range(number)),
        closing='"quoted"',
        outcome=outcome,
        score=0.1 + number,
        token_ids=tuple(range(number * 3)),
        train_mask=tuple(index % 3 == 0 for index in range(number * 3)),
        error="KeyError" if outcome is Outcome.ERROR else "",
        detail="boom" if outcome is Outcome.ERROR else "",
    )
    for number, outcome in enumerate(Outcome)
]


def test_a_record_is_plain_json_with_a_format_and_reads_back() -> None:
    for trajectory in PLAYED:
        record = to_record(trajectory)
        assert record["format"] == FORMAT
        assert from_record(json.loads(json.dumps(record))) == trajectory


def test_json_lines_read_back(tmp_path: Path) -> None:
    export(PLAYED, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert [from_record(json.loads(line)) for line in lines] == PLAYED
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_parquet_reads_back_with_one_row_for_each_trajectory(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(PLAYED, tmp_path / "out.parquet")
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [from_record(row) for row in rows] == PLAYED
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_nothing_is_exported_as_a_file_without_rows(tmp_path: Path, ending: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"out.{ending}"
    export([], path)
    assert (path.read_bytes() == b"") if ending == "jsonl" else (parquet.read_table(path).num_rows == 0)


@pytest.mark.parametrize("name", ["out.csv", "out", "out.jsonl.gz"])
def test_another_ending_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"must end in \.jsonl or \.parquet"):
        export(PLAYED, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_path_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path, ending: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="choose another folder"):
        export(PLAYED, tmp_path / "file" / f"out.{ending}")


def test_an_export_that_breaks_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    with pytest.raises(TypeError):
        export([PLAYED[0], "no trajectory"], path)  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.jsonl"]


def test_the_journal_reads_back_and_a_repeated_round_overwrites(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "episodes")
    journal.write("0001", PLAYED)
    journal.write("0001", PLAYED[:2])
    journal.write("0002", [])
    assert journal.names() == ["0001", "0002"]
    assert list(journal.read("0001")) == PLAYED[:2]
    assert list(journal.read("0002")) == list(journal.read("absent")) == []
