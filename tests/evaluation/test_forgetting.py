"""Forgetting: the probe plays the same tasks in every m-th round, and what fell since the best round is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedse import run
from fedse.cli import app
from fedse.evaluation.forgetting import Remembered, forgetting
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView


class Reports:
    """A run of which only what probes told is asked for."""

    def __init__(self, east: Sequence[float | None], closing: float) -> None:
        self._east = east
        self._closing = closing

    def last_round(self) -> int:
        return len(self._east)

    def report(self, number: int) -> dict[str, Any]:
        share = self._east[number - 1]
        rows = [] if share is None else [{"client": "east", "world": "maze", "success": share}]
        return {"clients": {"east": {"probes": {"drift": rows}}, "west": {}}}

    def evaluation(self, split: str, number: int) -> dict[str, Any] | None:
        if (split, number) != ("validation", len(self._east)):
            return None
        return {"probes": {"east": {"drift": [{"client": "east", "world": "maze", "success": self._closing}]}}}


def test_what_fell_since_the_best_round_before() -> None:
    told: Any = Reports([0.2, None, 0.9, 0.5, 0.7], closing=0.95)
    rounds = forgetting(told)["east: maze"]
    assert list(rounds) == [0, 2, 3, 4, 5], "adapters, each measured in the round that it enters"
    assert rounds[0] == Remembered(0.2, None)
    assert [rounds[number].forgotten for number in (2, 3, 4, 5)] == pytest.approx([-0.7, 0.4, 0.2, -0.05])


def test_every_second_adapter_is_measured_and_shown(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"rounds": 3, "evaluation": {"tasks": 2, "tasks_per_round": 0, "test_tasks": 0}}
    run(table_experiment(**changes), tmp_path / "plain")
    folder = run(table_experiment(**changes, probes=[{"name": "drift", "every": 2, "tasks": 3}]), tmp_path).folder
    view = RunView.existing(folder)
    assert view.digest_of(3) == RunView.existing(tmp_path / "plain/table").digest_of(3), "nobody learns from it"
    found = forgetting(view)
    assert set(found) == {"east: maze", "west: maze"} and [list(rounds) for rounds in found.values()] == [[0, 2, 3]] * 2
    played = (view.report(3) or {})["clients"]["east"]["probes"]["drift"][0]
    assert played["episodes"] == 3 and found["east: maze"][2].success == played["success"]
    assert (view.report(2) or {})["clients"]["east"].get("probes", {}).get("drift", []) == []
    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"})
    success, forgotten = found["west: maze"][3]
    assert shown.exit_code == 0 and "Drift: validation success" in shown.output
    assert f"{100 * success:.1f} / {100 * (forgotten or 0):+.1f}" in shown.output
    assert forgetting(RunView.existing(tmp_path / "plain/table")) == {}
