"""`benchmarks/side_by_side.py` tells how long the rounds of runs took that went on at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENT = """
name: table
model: table
policy: table
learner: table
clients: {north: {worlds: [{name: maze, mode: original}]}}
start: {tasks: 3}
exploration: {tasks: 4}
evaluation: {tasks: 4, test_tasks: 0}
"""
BENCHMARK = Path(__file__).parents[1] / "benchmarks/side_by_side.py"


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    file = tmp_path / "table.yaml"
    file.write_text(EXPERIMENT)
    return file


def measured(file: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARK), str(file), "--runs", "2", "--keep", str(folder), *more]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_runs_at_the_same_time_are_timed_round_by_round(table_file: Path, tmp_path: Path) -> None:
    done = measured(table_file, tmp_path / "runs", "--rounds", "2", "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert {name: len(seconds) for name, seconds in found["seconds_of_rounds"].items()} == {"seed_1": 2, "seed_2": 2}
    assert found["seconds"] > found["slowest_run"]
    assert (tmp_path / "runs/seed_2/manifest.json").is_file()
    again = measured(table_file, tmp_path / "runs", "--rounds", "2")
    assert again.returncode and "choose another folder" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "told"), [("aggregator=nobody", "nobody"), ("rounds=0", "have no rounds")])
def test_runs_that_fail_or_cannot_be_timed_are_told(setting: str, told: str, table_file: Path, tmp_path: Path) -> None:
    done = measured(table_file, tmp_path / "runs", "--set", setting)
    assert done.returncode and told in done.stderr


@pytest.mark.parametrize(
    ("given", "told"), [(["--set", "name=mine"], "told apart"), (["--runs", "0"], "at least one run")]
)
def test_what_would_be_found_out_after_hours_is_refused_at_once(
    given: list[str], told: str, table_file: Path, tmp_path: Path
) -> None:
    done = measured(table_file, tmp_path / "runs", *given)
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "runs").exists()
