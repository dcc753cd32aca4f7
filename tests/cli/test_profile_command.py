"""`fedse profile` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedse.cli.profile import _table
from fedse.evaluation.profile import Stretch
from fedse_command import command

TABLE = """
name: table
rounds: 9
model: {name: table, rows: 512}
policy: table
learner: table
clients:
  east: {worlds: [{name: maze, mode: original}]}
start: {tasks: 5}
exploration: {tasks: 5}
evaluation: {tasks: 5, test_tasks: 0}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.yaml").write_text(TABLE)
    return tmp_path


def test_of_many_rounds_a_terminal_shows_a_few_and_their_sum() -> None:
    rounds = [Stretch(f"round {number}", {"world": number, "disk": 1.0}, {"episodes": 10}) for number in range(1, 21)]
    whole = [Stretch("beginning", {"rest": 7.0}), *rounds, Stretch("end", {"rest": 1.0})]
    table = _table(SimpleNamespace(name="twenty"), whole)  # type: ignore[arg-type]
    columns = [str(column.header) for column in table.columns]
    assert columns == ["span", "beginning", "round 1", "round 2", "round 11", "round 20", "end", "all rounds", "%"]
    cells = {row[0]: row[1:] for row in zip(*(list(column.cells) for column in table.columns), strict=True)}
    assert cells["world"] == ("-", "1.00", "2.00", "11.00", "20.00", "-", "210.00", "91.3")
    assert cells["all"] == ("7.00", "2.00", "3.00", "12.00", "21.00", "1.00", "230.00", "100.0")
    assert cells["episodes"] == ("0", "10", "10", "10", "10", "0", "200", "")


@pytest.mark.slow
def test_it_prints_a_table_and_writes_numbers_and_a_picture(folder: Path) -> None:
    done = command("profile", "table.yaml", "--set", "exploration.tasks=4", folder=folder)
    assert done.returncode == 0, done.stderr
    for expected in ("round 1", "round 2", "validation", "world", "aggregate", "of them evaluation"):
        assert expected in done.stdout, done.stdout
    assert "round 3" not in done.stdout
    assert {path.name for path in folder.iterdir()} == {"table.yaml", "profile.json", "profile.png"}
    found = json.loads((folder / "profile.json").read_text())
    rounds = [stretch for stretch in found["stretches"] if stretch["name"].startswith("round")]
    assert [stretch["counts"]["episodes to explore"] for stretch in rounds] == [4, 4]
    for stretch in found["stretches"]:
        assert sum(stretch["spans"].values()) == pytest.approx(stretch["seconds"], abs=1e-4)
        assert stretch["spans"].keys() <= found["meanings"].keys()


def test_a_run_can_be_kept(folder: Path) -> None:
    done = command("profile", "table.yaml", "--rounds", 1, "--runs", "kept", "--output", "new/one.json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "kept/table/rounds/0001/report.json").exists()
    assert (folder / "new/one.json").exists() and (folder / "new/one.png").exists()


def test_an_earlier_profile_is_not_overwritten(folder: Path) -> None:
    (folder / "profile.json").write_text("mine")
    done = command("profile", "table.yaml", folder=folder)
    assert done.returncode == 2
    assert done.stderr == "fedse: profile.json exists already: choose another name with --output, or remove it.\n"
    assert (folder / "profile.json").read_text() == "mine"
