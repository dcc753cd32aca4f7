from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedse.experiment import Experiment, assemble, build_parts
from fedse.federation.estimate import estimate
from fedse.runs.folder import RunFolder


def test_an_estimate_grows_with_the_run_and_is_near_its_disk_use(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    import fedse

    experiment = table_experiment(rounds=3)
    parts = build_parts(experiment)
    run = RunFolder.create(tmp_path / "estimate", experiment.to_yaml(), experiment.digest())
    federation = assemble(experiment, parts, run)
    adapter = federation.initial_adapter()
    short, longer = (
        estimate(federation.clients, parts.model, parts.policy, parts.learner, adapter, rounds) for rounds in (3, 30)
    )
    assert 0 < short.seconds < longer.seconds
    assert short.episodes < longer.episodes
    assert all(len(client.buffer) == 0 for client in federation.clients)
    used = RunFolder.existing(fedse.run(experiment, tmp_path).folder).size()
    assert used / 4 < short.bytes < used * 4
