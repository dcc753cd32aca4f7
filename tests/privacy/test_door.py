"""The door of a site: everything that leaves is in its ledger, and too much does not leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from assembled import assembled
from fedse.errors import TooMuchLeaves
from fedse.experiments.options import Experiment
from fedse.privacy.door import ALLOWED
from fedse.types import ClientUpdate, RoundTask


def ledger(folder: Path, client: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "clients" / client / "ledger.jsonl").read_text().splitlines()]


def test_every_field_of_every_answer_is_in_the_ledger(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(), tmp_path)
    lines = ledger(result.folder, "east")
    assert [line["task"] for line in lines if line["field"] == "vector"] == ["train-0001", "train-0002"]
    answered = ["train-0001", "train-0002", "validation-0002", "test-0002"]
    assert [line["task"] for line in lines if line["field"] == "counts"] == answered
    assert {line["field"] for line in lines} == set(ALLOWED)
    assert all(line["bytes"] > 0 and line["time"] > 0 and line["round"] in (1, 2) for line in lines)
    vector = next(line for line in lines if line["field"] == "vector")
    assert (vector["shape"], vector["bytes"]) == ([512 * 4], 512 * 4 * 4)


def test_the_ledger_holds_the_hash_of_what_the_engine_got(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(sending={"precision": "int8"})
    federation = assembled(experiment, tmp_path / "run")
    adapter = federation.initial_adapter()
    vector = np.zeros(512 * 4, np.float32)
    federation.engine.send({"east": RoundTask(1, "train", vector, adapter.layout, adapter.config)})
    (update,) = federation.engine.poll()
    assert isinstance(update, ClientUpdate) and update.encoded is not None
    (line,) = [line for line in ledger(federation.run.path, "east") if line["field"] == "vector"]
    assert line["sha256"] == hashlib.sha256(update.encoded.array.tobytes()).hexdigest()
    assert line["bytes"] == update.encoded.array.nbytes < 512 * 4 * 4 / 3.8
    assert 0 < update.metrics["rounding"] < 0.02


def test_more_than_the_cap_does_not_leave_and_is_not_called_sent(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(TooMuchLeaves, match=r"'east' for train-0001 takes 0.00\d MB, more than"):
        fedse.run(table_experiment(sending={"max_megabytes": 0.005}), tmp_path)
    assert not (tmp_path / "table/clients/east/ledger.jsonl").exists()


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_rounded_updates_lead_to_nearly_the_same_adapter_in_fewer_bytes(
    precision: str, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    exact = fedse.run(table_experiment(rounds=1), tmp_path / "exact")
    rounded = fedse.run(table_experiment(rounds=1, sending={"precision": precision}), tmp_path / "rounded")
    report = json.loads((rounded.folder / "rounds/0001/report.json").read_text())
    sizes = {entry["bytes"] for entry in report["clients"].values()}
    assert sizes == {512 * 4 * 2} if precision == "float16" else {512 * 4 + 4 * 8}
    away = np.abs(exact.adapter.tensors["table"] - rounded.adapter.tensors["table"]).max()
    assert 0 < away < (2e-3 if precision == "float16" else 3e-2)
