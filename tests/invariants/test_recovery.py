"""Invariant 3: killed at any point and started again = never stopped."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fedse
from fedse.errors import Stopped
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder

KILLED_AT = Path(__file__).with_name("killed_at.py")


def final_digest(folder: Path) -> str:
    run = RunFolder.existing(folder)
    return run.digest_of(run.last_round() or 0)


def buffers(folder: Path) -> list[object]:
    return [read_file(path) for path in sorted(folder.glob("clients/*/buffer.sqlite"))]


def start(file: Path, runs: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fedse", "run", str(file), "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_until_done(file: Path, runs: Path, longest: float, chance: random.Random, kills: int) -> int:
    """Start the same command again and again, killing it at random moments at most `kills` times; returns how often."""
    done = 0
    while True:
        process = start(file, runs)
        try:
            code = process.wait(timeout=chance.uniform(0.2, longest) if done < kills else 250)
            assert code == 0
            return done
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1


@pytest.mark.torture
@pytest.mark.timeout(900)
def test_twenty_kills_at_random_moments_change_nothing(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(rounds=4, exploration={"tasks": 25, "attempts": 2})
    file = tmp_path / "experiment.yaml"
    file.write_text(experiment.to_yaml())
    began = time.monotonic()
    assert start(file, tmp_path / "whole").wait(timeout=100) == 0
    whole = time.monotonic() - began
    expected, expected_buffers = final_digest(tmp_path / "whole/table"), buffers(tmp_path / "whole/table")
    chance, kills, attempt = random.Random(7), 0, 0
    while kills < 20:
        attempt += 1
        runs = tmp_path / f"attempt{attempt}"
        kills += kill_until_done(file, runs, whole, chance, 20 - kills)
        assert final_digest(runs / "table") == expected
        assert buffers(runs / "table") == expected_buffers


def killed_at(file: Path, *runs: tuple[int, Path]) -> list[list[str]]:
    """What each run printed, and its exit code."""
    words = [str(word) for operation_and_folder in runs for word in operation_and_folder]
    command = [sys.executable, str(KILLED_AT), str(file), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=800)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.torture)]
)
def test_a_kill_at_any_file_operation_changes_nothing(
    table_experiment: Callable[..., Experiment], tmp_path: Path, kills: int
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(rounds=2).to_yaml())
    ((digest, operations, ended),) = killed_at(file, (0, tmp_path / "whole"))
    total = int(operations)
    assert total > 40 and ended == "0"
    at = {number: tmp_path / f"at{number}" for number in range(1, total, -(-total // kills))}
    said = killed_at(file, *(run for number, runs in at.items() for run in ((number, runs), (0, runs))))
    for (number, runs), killed, resumed in zip(at.items(), said[::2], said[1::2], strict=True):
        assert killed == [str(-signal.SIGKILL)]
        assert (resumed[0], resumed[-1]) == (digest, "0"), f"killed at operation {number} of {total}"
        assert buffers(runs / "table") == buffers(tmp_path / "whole/table")
        assert not list(runs.rglob("*.part"))


@pytest.mark.torture
@pytest.mark.timeout(500)
def test_three_kills_of_a_language_model_run_change_nothing(tiny_file: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert start(tiny_file, tmp_path / "whole").wait(timeout=200) == 0
    whole = time.monotonic() - began
    chance, kills, attempt = random.Random(11), 0, 0
    while kills < 3:
        attempt += 1
        runs = tmp_path / f"attempt{attempt}"
        kills += kill_until_done(tiny_file, runs, whole, chance, 3 - kills)
        assert final_digest(runs / "tiny") == final_digest(tmp_path / "whole/tiny")


@pytest.mark.slow
def test_a_run_stopped_by_time_goes_on_to_the_same_result(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(rounds=3)
    whole = fedse.run(experiment, tmp_path / "whole")
    for _ in range(experiment.rounds):
        with pytest.raises(Stopped):
            fedse.run(experiment, tmp_path / "parts", max_minutes=1e-9)
        _one_more_round(experiment, tmp_path / "parts")
    assert fedse.run(experiment, tmp_path / "parts").adapter.digest() == whole.adapter.digest()


def _one_more_round(experiment: Experiment, runs: Path) -> None:
    done = RunFolder.existing(runs / experiment.name).last_round() or 0
    content = json.loads(experiment.model_dump_json())
    fedse.run(Experiment(**{**content, "rounds": min(done + 1, experiment.rounds)}), runs)


@pytest.mark.slow
def test_ctrl_c_leaves_with_a_message_and_a_run_that_goes_on(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(rounds=50, exploration={"tasks": 25, "attempts": 4}).to_yaml())
    command = [sys.executable, "-m", "fedse", "run", str(file), "--runs", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # The second round's folder is there when the first one is certainly in the manifest.
    while not (tmp_path / "table/rounds/0002").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes the run" in output
    assert (RunFolder.existing(tmp_path / "table").last_round() or 0) >= 1
