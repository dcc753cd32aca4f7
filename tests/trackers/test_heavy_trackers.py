"""The trackers `wandb` and `mlflow`, each in an environment of its own: what the library stored is what reports say."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from told_scalars import Scalars, told_scalars

from fedse.experiments.options import Experiment
from other_packages import environment_with

Make = Callable[..., Experiment]

# Its file is a log in blocks, as LevelDB has it, of the records that would be sent to a server.
READ_WANDB = """
import json, struct, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2

def records(content):
    place, whole = 7, b""
    while place < len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""

rows, ids, told = [], set(), ""
for file in sorted(Path(sys.argv[1]).glob("wandb/offline-run-*/run-*.wandb")):
    for record in records(file.read_bytes()):
        if record.WhichOneof("record_type") == "run":
            ids.add(record.run.run_id)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
        told += str(record)
print(json.dumps({"rows": rows, "ids": sorted(ids), "told": told}))
"""
READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=f"sqlite:///{sys.argv[1]}/mlflow.db")
experiment = client.get_experiment_by_name("fedse")
runs = client.search_runs([experiment.experiment_id])
(run,) = runs
names = run.data.metrics
rows = [[name, item.step, item.value] for name in names for item in client.get_metric_history(run.info.run_id, name)]
print(json.dumps({"rows": rows, "name": run.info.run_name, "status": run.info.status}))
"""


def run_twice(python: Path, folder: Path, experiment: Callable[[int], Experiment]) -> Path:
    """One round, and then a second one by another process: the same run for whoever looks at it."""
    for rounds in (1, 2):
        (folder / "experiment.yaml").write_text(experiment(rounds).to_yaml())
        done = subprocess.run(
            [str(python), "-m", "fedse", "run", "experiment.yaml"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "failed" not in done.stdout, done.stdout
    return folder / "runs/table"


def read(python: Path, program: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run([str(python), "-c", program, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def same(found: Scalars, told: Scalars) -> None:
    assert found.keys() == told.keys() and len(told) > 20
    for name, values in told.items():
        assert found[name] == pytest.approx(values), name


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_wandb_stores_offline_what_the_reports_say_and_nothing_else(table_experiment: Make, tmp_path: Path) -> None:
    python = environment_with("wandb>=0.26,<1", folder=tmp_path / "environment")
    run = run_twice(python, tmp_path, lambda rounds: table_experiment(rounds=rounds, trackers=["wandb"]))
    stored = read(python, READ_WANDB, run)
    found: Scalars = {}
    for row in stored["rows"]:
        for name, value in row.items():
            if not name.startswith("_") and name != "round":
                found.setdefault(name, {})[row["round"]] = value
    same(found, told_scalars(run))
    assert len(stored["ids"]) == 1, "one run, though it was begun twice"
    for private in (str(tmp_path), os.uname().nodename):
        assert private not in stored["told"], "numbers are told, nothing of the machine"


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_mlflow_stores_what_the_reports_say(table_experiment: Make, tmp_path: Path) -> None:
    python = environment_with("mlflow>=3.9,<4", folder=tmp_path / "environment")
    chosen = {"name": "mlflow", "folder": str(tmp_path / "shared")}
    run = run_twice(python, tmp_path, lambda rounds: table_experiment(rounds=rounds, trackers=[chosen]))
    stored = read(python, READ_MLFLOW, tmp_path / "shared")
    found: Scalars = {}
    for name, step, value in stored["rows"]:
        found.setdefault(name, {})[step] = value
    same(found, told_scalars(run))
    assert (stored["name"], stored["status"]) == ("table", "FINISHED")
