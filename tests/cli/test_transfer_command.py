"""`fedse transfer`: the matrix, and worlds nobody learned from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import fedse
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from fedse_command import command


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fed_se", pytest.param("centralized_se", marks=pytest.mark.torture)])
def test_the_matrix_and_what_left_out_worlds_gain(
    table_experiment: Callable[..., Experiment], tmp_path: Path, method: str
) -> None:
    experiment = table_experiment(
        method=method, start={"tasks": 10}, exploration={"tasks": 2}, evaluation={"tasks": 2, "test_tasks": 15}
    )
    fedse.run(experiment, tmp_path)
    done = command("transfer", "table", "--leave-one-out", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("(beginning)", "(shared)", "left out", "learned too", "without_east", "McNemar", "synergy gap"):
        assert expected in done.stdout, done.stdout
    assert (tmp_path / "table/transfer.png").read_bytes().startswith(b"\x89PNG")
    alone = json.loads((tmp_path / "table/leave_one_out/without_east/evaluations/test-0002.json").read_text())
    left_out = next(row for row in alone["worlds"] if row["client"] == "east")
    assert left_out["success"] > 0.2, "both clients live in the same maze, so what one learns helps the other"
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("│ east") and "%" not in line][-1:]
    assert f"{100 * left_out['success']:.1f}" in line
    told = json.loads(command("transfer", "table", "--json", folder=tmp_path).stdout)
    assert told["split"] == "test" and (method != "fed_se" or len(told["synergy_gap"]) == 2)


@pytest.mark.slow
def test_transfer_needs_something_that_was_learned(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    fedse.run(table_experiment(method="pretrained", name="base"), tmp_path)
    fedse.run(table_experiment(method="local", name="apart", rounds=1), tmp_path)
    folder = tmp_path / "processes"
    RunFolder.create(folder, table_experiment(engine="flower").to_yaml(), "digest")
    for arguments, sentence in [
        (("transfer", "processes"), "transfer needs them in one, `engine: local`"),
        (("transfer", "base"), "no client has learned anything"),
        (("transfer", "apart", "--leave-one-out"), "share nothing"),
        (("transfer", "apart", "--split", "tset"), "did you mean 'test'?"),
    ]:
        done = command(*arguments, folder=tmp_path)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
