from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedse.adapters.packing import pack
from fedse.experiment import Experiment, assemble, build_parts
from fedse.runs.folder import RunFolder
from fedse.types import RoundTask


def test_clients_with_different_adapters_play_with_their_own_and_alike_ones_share_a_batch(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    site = {"worlds": [{"name": "maze", "mode": "original"}]}
    experiment = table_experiment(clients={"east": site, "north": site, "west": site})
    run = RunFolder.create(tmp_path / "run", experiment.to_yaml(), experiment.digest())
    federation = assemble(experiment, build_parts(experiment), run)
    adapter = federation.initial_adapter()
    shifts = {"east": 0.0, "north": 1.0, "west": 0.0}
    tasks = {
        name: RoundTask(1, "train", pack(adapter) + np.float32(shift), adapter.layout, adapter.config)
        for name, shift in shifts.items()
    }
    federation.engine.send(tasks)
    updates = [federation.engine.poll()[0] for _ in tasks]
    assert [update.client for update in updates] == ["east", "north", "west"]
    played = {
        client.name: {trajectory.adapter for trajectory in client.journal.read("0001")} for client in federation.clients
    }
    assert played["east"] == played["west"] != played["north"]
    assert all(len(digests) == 1 for digests in played.values())
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert [event["episodes"] for event in events if event["event"] == "episodes_played"] == [50, 25]


def test_worlds_in_worker_processes_lead_to_the_same_adapter(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    import fedse

    here = fedse.run(table_experiment(), tmp_path / "here")
    there = fedse.run(table_experiment(engine={"processes": 2}), tmp_path / "there")
    assert here.adapter.digest() == there.adapter.digest()
    assert here.test["worlds"] == there.test["worlds"]
