"""Invariants 1, 2 (the order of clients; the mean of equals is in tests/aggregators) and 10."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.adapters.files import read_adapter
from fedse.errors import TooManyErrors
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.seeds import stream
from fedse.types import Lesson, Outcome
from fedse.worlds.maze import Maze


@pytest.mark.slow
def test_one_client_with_the_plain_mean_is_local_training_bit_for_bit(
    tiny_experiment: Experiment, tmp_path: Path
) -> None:
    alone = tiny_experiment.model_copy(update={"clients": {"maze": tiny_experiment.clients["maze"]}})
    result = fedse.run(alone, tmp_path)

    parts = build_components(alone)
    buffer = read_file(result.folder / "clients" / "maze" / "buffer.sqlite")
    adapter = parts.model.initial_adapter(alone.seed)
    for number in (1, 2):
        remembered = [item for item in reversed(_newest_first(buffer)) if item.round <= number]
        adapter, _ = parts.learner.learn(Lesson(adapter, remembered, stream(alone.seed, "maze", number, "learn")))
        assert adapter.digest() == read_adapter(result.folder / "rounds" / f"{number:04d}" / "adapter").digest()


def _newest_first(trajectories: list[Any]) -> list[Any]:
    return sorted(trajectories, key=lambda item: (-item.round, item.world, item.task, item.attempt))


def test_the_order_in_which_clients_are_written_does_not_matter(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    forwards = table_experiment()
    backwards = forwards.model_copy(update={"clients": dict(reversed(forwards.clients.items()))})
    first, second = fedse.run(forwards, tmp_path / "a"), fedse.run(backwards, tmp_path / "b")
    assert first.adapter.digest() == second.adapter.digest()


class FragileMaze(Maze):
    """Breaks on every third task."""

    def act(self, action: str) -> Any:
        if self._fragile:
            raise ConnectionError("the secret state of the world")
        return super().act(action)

    def begin(self, task: str) -> str:
        self._fragile = stream("fragile", task) % 3 == 0
        return super().begin(task)


def _fragile(table_experiment: Callable[..., Experiment], **changes: Any) -> Experiment:
    worlds = [{"name": f"{__name__}:FragileMaze", "mode": "original"}]
    return table_experiment(clients={"site": {"worlds": worlds}}, **changes)


def test_an_error_never_enters_buffer_success_rate_or_loss(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = _fragile(table_experiment, limits={"max_error_share": 1.0}, filter="none")
    result = fedse.run(experiment, tmp_path)
    played = [item for name in ("0001", "0002") for item in Journal(result.folder / "clients/site/episodes").read(name)]
    broken = [item for item in played if item.outcome is Outcome.ERROR]
    assert broken and len(broken) < len(played)
    assert {item.error for item in broken} == {"ConnectionError"}

    # The filter "none" keeps every failure, and still no error is remembered.
    remembered = read_file(result.folder / "clients/site/buffer.sqlite")
    assert all(item.outcome is not Outcome.ERROR for item in remembered)
    assert not {item.task for item in broken} & {item.task for item in remembered if item.round > 0}

    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    row = report["evaluation"]["worlds"][0]
    assert row["episodes"] + sum(row["errors"].values()) == experiment.evaluation.tasks
    counts = report["clients"]["site"]["counts"]
    assert counts["errors"] > 0
    assert counts["kept"] == counts["explored"] - counts["errors"]


def test_too_many_errors_stop_the_run(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    with pytest.raises(TooManyErrors, match="client 'site' in round 1 ended in an error"):
        fedse.run(_fragile(table_experiment), tmp_path)
    assert not (tmp_path / "table" / "rounds" / "0001").exists()
