"""Forgetting: the probe plays the same tasks in every m-th round, and what fell since the best round is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedse import run
from fedse.cli import app
from fedse.evaluation.drift_plot import drift_figure
from fedse.evaluation.forgetting import Remembered, forgetting
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.types import Outcome


class Reports:
    """A run of which only what probes told is asked for."""

    def __init__(
        self, east: Sequence[float | None], closing: float | None, learned: Sequence[float | None] = ()
    ) -> None:
        self._told = {"drift": east, "drift_learned": learned}
        self._closing = closing

    def last_round(self) -> int:
        return len(self._told["drift"])

    def report(self, number: int) -> dict[str, Any]:
        probes = {name: _rows(shares[number - 1]) for name, shares in self._told.items() if shares}
        return {"clients": {"east": {"probes": probes}, "west": {}}}

    def evaluation(self, split: str, number: int) -> dict[str, Any] | None:
        if (split, number) != ("validation", self.last_round()):
            return None
        return {"probes": {"east": {"drift": _rows(self._closing)}}}


def _rows(share: float | None) -> list[dict[str, Any]]:
    return [] if share is None else [{"client": "east", "world": "maze", "success": share, "invalid": 0.25}]


def test_what_fell_since_the_best_round_before() -> None:
    told: Any = Reports([0.2, None, 0.9, 0.5, 0.7], closing=0.95)
    rounds = forgetting(told).shared["east: maze"]
    assert list(rounds) == [0, 2, 3, 4, 5], "adapters, each measured in the round that it enters"
    assert rounds[0] == Remembered(0.2, None, 0.25)
    assert [rounds[number].forgotten for number in (2, 3, 4, 5)] == pytest.approx([-0.7, 0.4, 0.2, -0.05])


@pytest.mark.slow
def test_every_second_adapter_is_measured_and_shown(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"rounds": 3, "evaluation": {"tasks": 2, "tasks_per_round": 0, "test_tasks": 0}}
    run(table_experiment(**changes), tmp_path / "plain")
    folder = run(table_experiment(**changes, probes=[{"name": "drift", "every": 2, "tasks": 3}]), tmp_path).folder
    view = RunView.existing(folder)
    assert view.digest_of(3) == RunView.existing(tmp_path / "plain/table").digest_of(3), "nobody learns from it"
    found = forgetting(view).shared
    assert set(found) == {"east: maze", "west: maze"} and [list(rounds) for rounds in found.values()] == [[0, 2, 3]] * 2
    played = (view.report(3) or {})["clients"]["east"]["probes"]["drift"][0]
    assert played["episodes"] == 3 and found["east: maze"][2].success == played["success"]
    assert (view.report(2) or {})["clients"]["east"].get("probes", {}).get("drift", []) == []
    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"})
    success, forgotten, invalid = found["west: maze"][3]
    assert shown.exit_code == 0 and "Drift: validation success" in shown.output
    assert f"{100 * success:.1f} / {100 * (forgotten or 0):+.1f} / {100 * (invalid or 0):.1f}" in shown.output
    assert forgetting(RunView.existing(tmp_path / "plain/table")).worlds == []


def test_what_a_client_has_forgotten_itself_and_what_the_aggregate_has() -> None:
    told: Any = Reports([0.2, 0.9, 0.5], closing=0.6, learned=[0.4, 0.7, None])
    found = forgetting(told)
    assert found.learned["east: maze"][1] == (0.4, pytest.approx(-0.2), 0.25), "against the adapter that entered"
    assert found.learned["east: maze"][2] == (0.7, pytest.approx(0.2), 0.25), "against the best adapter before"
    assert found.shared["east: maze"][2].forgotten == pytest.approx(0.4), (
        "0.2 of it by the client, 0.2 by the aggregate"
    )
    assert [(line.round, line.adapter) for line in found.lines()] == [
        *[(0, "shared"), (1, "learned"), (1, "shared"), (2, "learned"), (2, "shared"), (3, "shared")]
    ]


def test_a_client_that_told_nothing_afterwards_still_has_its_line() -> None:
    told: Any = Reports([0.2, None], closing=None, learned=[0.4, None])
    assert [(line.round, line.adapter) for line in forgetting(told).lines()] == [(0, "shared"), (1, "learned")]


def test_what_was_learned_is_played_before_aggregation_on_the_same_tasks(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"rounds": 2, "evaluation": {"tasks": 2, "tasks_per_round": 0, "test_tasks": 0}}
    plain = run(table_experiment(**changes), tmp_path / "plain")
    asked = run(
        table_experiment(**changes, probes=[{"name": "drift", "every": 2, "tasks": 3, "learned": True}]), tmp_path
    )
    assert asked.adapter.digest() == plain.adapter.digest(), "nobody learns from it"
    found = forgetting(RunView.existing(asked.folder))
    assert {name: list(rounds) for name, rounds in found.learned.items()} == {"east: maze": [2], "west: maze": [2]}
    played = {
        (client, name): list(Journal(asked.folder / "clients" / client / "episodes").read(name))
        for client in ("east", "west")
        for name in ("drift_learned-train-0002", "probes-validation-0002")
    }
    for client in ("east", "west"):
        before, after = (played[client, name] for name in ("drift_learned-train-0002", "probes-validation-0002"))
        assert [item.task for item in before] == [item.task for item in after] and len(before) == 3
        solved = sum(item.outcome is Outcome.SUCCESS for item in before)
        assert found.learned[f"{client}: maze"][2].success == pytest.approx(solved / 3)
    adapters = {key: {item.adapter for item in items} for key, items in played.items()}
    assert adapters["east", "drift_learned-train-0002"] != adapters["west", "drift_learned-train-0002"]
    assert adapters["east", "probes-validation-0002"] == adapters["west", "probes-validation-0002"]
    assert not (asked.folder / "clients/east/episodes/drift_learned-train-0001.jsonl").exists(), (
        "only every second round"
    )


def test_both_ways_of_measuring_what_was_learned_go_together(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    evaluation = {"tasks": 2, "tasks_per_round": 2, "test_tasks": 0, "after_learning": 2}
    probes = [{"name": "drift", "every": 1, "tasks": 3, "learned": True}]
    view = RunView.existing(run(table_experiment(rounds=1, evaluation=evaluation, probes=probes), tmp_path).folder)
    told = (view.report(1) or {})["clients"]["east"]["probes"]
    assert told["after_learning"][0]["episodes"] == 2 and told["drift_learned"][0]["episodes"] == 3


def test_the_picture_has_every_number_of_the_table() -> None:
    told: Any = Reports([0.2, 0.9, 0.5], closing=0.65, learned=[0.4, 0.725, None])
    found = forgetting(told)
    axes = drift_figure(found, "a run").axes
    shown = [[text.get_text() for text in axis.texts] for axis in axes]
    assert shown == [
        ["20", "40", "90", "72.5", "50", "65"],
        ["-20", "-70", "17.5", "40", "25"],
        ["25"] * 6,
    ]
    assert [label.get_text() for label in axes[0].get_yticklabels()][:3] == ["0, shared", "1, learned", "1, shared"]
    assert [label.get_text() for label in axes[1].get_xticklabels()] == ["east: maze"]
    low, high = axes[1].images[0].get_clim()
    assert low == -high, "nothing forgotten is in the middle of the colours"


@pytest.mark.slow
def test_show_draws_it_and_says_where_there_is_nothing_to_draw(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"rounds": 1, "evaluation": {"tasks": 2, "test_tasks": 0}}
    plain = run(table_experiment(**changes), tmp_path / "plain").folder
    refused = CliRunner().invoke(app, ["show", str(plain), "--picture", str(tmp_path / "plain.png")])
    assert refused.exit_code == 2 and "`probes: [drift]`" in refused.output
    folder = run(table_experiment(**changes, probes=[{"name": "drift", "every": 1, "tasks": 2}]), tmp_path).folder
    shown = CliRunner().invoke(app, ["show", str(folder), "--picture", str(tmp_path / "drift.png")])
    assert shown.exit_code == 0 and "Picture: " in shown.output
    assert (tmp_path / "drift.png").read_bytes().startswith(b"\x89PNG")
