from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedse.adapters.packing import pack, unpack
from fedse.experiment import Experiment, assemble, build_parts
from fedse.runs.folder import RunFolder
from fedse.types import RoundTask


def test_clients_with_different_adapters_in_one_round_are_each_played_with_their_own(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment()
    run = RunFolder.create(tmp_path / "run", experiment.to_yaml(), experiment.digest())
    federation = assemble(experiment, build_parts(experiment), run)
    adapter = federation.initial_adapter()
    vector = pack(adapter)
    tasks = {
        name: RoundTask(1, "train", vector + shift, adapter.layout, adapter.config)
        for shift, name in enumerate(federation.engine.clients)
    }
    federation.engine.send(tasks)
    assert len(federation.engine.poll() + federation.engine.poll()) == 2
    for client in federation.clients:
        own = unpack(tasks[client.name].vector, adapter.layout, adapter.config).digest()
        assert {trajectory.adapter for trajectory in client.journal.read("0001")} == {own}


def test_worlds_in_worker_processes_lead_to_the_same_adapter(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    import fedse

    here = fedse.run(table_experiment(), tmp_path / "here")
    there = fedse.run(table_experiment(engine={"processes": 2}), tmp_path / "there")
    assert here.adapter.digest() == there.adapter.digest()
    assert here.test["worlds"] == there.test["worlds"]
