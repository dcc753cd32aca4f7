"""`fedse sweep` as a user runs it: what fails is named, what is done is skipped, what is interrupted goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedse
from fedse.experiments.options import load_experiment
from fedse.runs.folder import RunFolder
from fedse_command import command

SWEEP = """
name: grid
experiment:
  rounds: ROUNDS
  model: {name: table, rows: 256}
  policy: table
  learner: {name: table, rate: 0.5}
  clients:
    east: {worlds: [{name: maze, mode: original, turn_limit: 8}]}
    west: {worlds: [{name: maze, mode: original, turn_limit: 6}]}
  start: {tasks: 10}
  exploration: {tasks: 4}
  evaluation: {tasks: 2, test_tasks: 2}
"""


@pytest.mark.slow
def test_a_failure_is_named_the_rest_is_done_and_done_is_skipped(tmp_path: Path) -> None:
    text = SWEEP.replace("ROUNDS", "1") + "variants: {tight: {checks.max_norm: 1.0e-9}, bad: {start: missing.json}}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    first = command("sweep", "sweep.yaml", "--processes", 2, folder=tmp_path)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "2 runs, 0 of them done already" in first.stdout
    assert "tight-s0: done after" in first.stdout
    assert "WARNING: In 1 of 1 rounds (1) there were updates, and none could be used" in first.stdout
    assert "bad-s0: failed after" in first.stdout and "missing.json" in first.stdout
    assert sorted(path.name for path in (tmp_path / "runs/grid").iterdir()) == [".sweep", "tight-s0"]
    before = (tmp_path / "runs/grid/tight-s0/events.jsonl").read_bytes()

    (tmp_path / "sweep.yaml").write_text(
        SWEEP.replace("ROUNDS", "1") + "variants: {tight: {checks.max_norm: 1.0e-9}}\n"
    )
    again = command("sweep", "sweep.yaml", folder=tmp_path)
    assert again.returncode == 0 and "1 runs, 1 of them done already" in again.stdout
    assert (tmp_path / "runs/grid/tight-s0/events.jsonl").read_bytes() == before
    waiting = command("sweep", "sweep.yaml", "--set", "seed=0", "--dry-run", folder=tmp_path)
    assert "tight-s0" in waiting.stdout and "done" in waiting.stdout
    header = next(line for line in waiting.stdout.splitlines() if "state" in line)
    assert [column.strip() for column in header.strip("┃").split("┃")] == ["run", "state", "rounds", "macro %", "why"]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.torture)])
def test_an_interrupted_sweep_goes_on_to_the_same_result(tmp_path: Path, stop: signal.Signals) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("ROUNDS", "15") + "methods: [fed_se, local_se]\n")
    line = [sys.executable, "-m", "fedse", "sweep", "sweep.yaml", "--processes", "2"]
    process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    begun = tmp_path / "runs/grid/fed_se-s0/rounds/0002"
    limit = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < limit:
        time.sleep(0.05)
    os.kill(process.pid, stop)
    printed, _ = process.communicate(timeout=90)
    assert process.returncode == 130, printed
    assert "the same command resumes the sweep" in printed and "interrupted" in printed
    stopped = RunFolder.existing(tmp_path / "runs/grid/fed_se-s0")
    assert 1 <= (stopped.last_round() or 0) < 15
    stopped.lock()  # Nobody is left who works on it.
    stopped.unlock()

    done = command("sweep", "sweep.yaml", "--processes", 2, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    whole = fedse.run(load_experiment(tmp_path / "runs/grid/.sweep/fed_se-s0.yaml"), tmp_path / "whole")
    assert RunFolder.existing(tmp_path / "runs/grid/fed_se-s0").digest_of(15) == whole.adapter.digest()
