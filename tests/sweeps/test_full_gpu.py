"""Runs that share a GPU which does not hold them all: those that find no room go on later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedse.errors import GpuFull
from fedse.runs.folder import RunFolder
from fedse_command import command

CARD = """
import atexit, pathlib, time
from fedse.errors import GpuFull
from fedse.learners.table import TableLearner

class OnACard(TableLearner):
    "One process at a time has room to learn; the first waits until another has found none."

    holds = False

    def learn(self, lesson):
        if not self.holds:
            try:
                pathlib.Path("card").mkdir()
            except FileExistsError:
                pathlib.Path("tried").touch()
                raise GpuFull("the GPU has no memory left.")
            type(self).holds = True
            atexit.register(pathlib.Path("card").rmdir)
            while not pathlib.Path("tried").exists():
                time.sleep(0.02)
        return super().learn(lesson)
"""
SWEEP = """
name: grid
seeds: [0, 1]
experiment:
  rounds: 2
  model: {name: table, rows: 64}
  policy: table
  learner: {name: "card:OnACard", rate: 0.5}
  clients:
    east: {worlds: [{name: maze, mode: original, turn_limit: 8}]}
    west: {worlds: [{name: maze, mode: original, turn_limit: 6}]}
  start: {tasks: 5}
  exploration: {tasks: 2}
  evaluation: {tasks: 2, test_tasks: 2}
"""


@pytest.mark.slow
def test_who_finds_no_room_beside_others_goes_on_later_and_who_finds_none_alone_has_failed(tmp_path: Path) -> None:
    (tmp_path / "card.py").write_text(CARD)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = command("sweep", "sweep.yaml", "--processes", 2, folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("it is resumed later, with 1 at a time from now on") == 1, done.stdout
    assert done.stdout.count(": done after") == 2
    cells = [path for path in (tmp_path / "runs/grid").iterdir() if path.name != ".sweep"]
    assert [RunFolder.existing(cell).last_round() for cell in cells] == [2, 2]

    (tmp_path / "card").mkdir()
    alone = command(
        "sweep", "sweep.yaml", "--set", "rounds=3", "--runs", "other", folder=tmp_path, environment=environment
    )
    assert alone.returncode == 1
    assert alone.stdout.count("failed after") == 2 and "the GPU has no memory left." in alone.stdout
    cell = next((tmp_path / "other/grid/.sweep").glob("*.yaml"))
    one = command("run", cell, "--runs", tmp_path / "other/grid", folder=tmp_path, environment=environment)
    assert one.returncode == GpuFull.exit_code, one.stdout + one.stderr
