"""Every client's adapter in every world."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.adapters.files import read_adapter
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.experiments.transfer import BEGINNING, SHARED, own_adapter, transfer

Make = Callable[..., Experiment]


@pytest.fixture
def make(table_experiment: Make) -> Make:
    def build(**changes: Any) -> Experiment:
        return table_experiment(
            **{
                "learner": {"name": "table", "rate": 0.5},
                "start": {"tasks": 10},
                "exploration": {"tasks": 5},
                "evaluation": {"tasks": 3, "test_tasks": 12},
                **changes,
            }
        )

    return build


def test_what_clients_fitted_is_made_again_bit_for_bit(make: Make, tmp_path: Path) -> None:
    result = fedse.run(make(), tmp_path)
    federation = open_run(result.folder)
    own = [own_adapter(federation.server, client, 2) for client in federation.clients]
    assert all(adapter is not None for adapter in own)
    stacked = np.stack([adapter.tensors["table"].astype(np.float64) for adapter in own if adapter is not None])
    np.testing.assert_array_equal(stacked.mean(axis=0).astype(np.float32), result.adapter.tensors["table"])
    assert not np.array_equal(stacked[0], stacked[1])


@pytest.mark.slow
def test_a_matrix_has_each_adapter_in_each_world_and_leaves_the_run_as_it_was(make: Make, tmp_path: Path) -> None:
    result = fedse.run(make(), tmp_path)
    before = {path: path.read_bytes() for path in result.folder.glob("clients/*/episodes/*.jsonl")}
    federation = open_run(result.folder)
    told: list[str] = []
    found = transfer(federation.server, federation.clients, "test", told.append)
    assert list(found["rows"]) == told == [BEGINNING, SHARED, "east", "west"]
    assert all([row["client"] for row in line["worlds"]] == ["east", "west"] for line in found["rows"].values())
    rows = {name: json.loads(json.dumps(line["worlds"])) for name, line in found["rows"].items()}
    assert rows[SHARED] == json.loads((result.folder / "evaluations/test-0002.json").read_text())["worlds"]
    assert {path: path.read_bytes() for path in before} == before

    told.clear()
    again = transfer(federation.server, federation.clients, "test", told.append)
    assert told == [] and json.loads(json.dumps(again)) == json.loads(json.dumps(found))


def test_adapters_of_clients_that_share_nothing_are_their_own(make: Make, tmp_path: Path) -> None:
    result = fedse.run(make(method="local"), tmp_path)
    federation = open_run(result.folder)
    found = transfer(federation.server, federation.clients, "test")
    assert list(found["rows"]) == [BEGINNING, "east", "west"]
    for at, name in enumerate(("east", "west")):
        assert found["rows"][name]["adapter"] == read_adapter(result.folder / f"clients/{name}/adapters/0002").digest()
        assert found["rows"][name]["worlds"][at] == result.test["worlds"][at]
