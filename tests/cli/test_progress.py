"""What a run prints about clients that have nothing yet, and about replies the worlds do not understand."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.cli.progress import Progress
from fedse.events import ClientFinished, EpisodesPlayed, Event
from fedse.experiments.options import Experiment
from fedse.federation.client_status import ClientStatus


@pytest.fixture
def singing(table_experiment: Callable[..., Experiment], tmp_path: Path) -> tuple[str, Path]:
    """What a run printed in which nobody finds the form of a reply, and its folder."""
    experiment = table_experiment(
        start="none",
        model={"name": "table", "actions": ["sing"], "rows": 16},
        rounds=3,
        exploration={"tasks": 1},
        evaluation={"tasks": 1, "test_tasks": 1},
    )
    console = Console(file=StringIO(), width=200)
    with Progress(console, 3) as progress:
        folder = fedse.run(experiment, tmp_path, trackers=[progress]).folder
    return console.file.getvalue(), folder  # type: ignore[attr-defined]


def test_a_run_says_who_sits_out_each_round_and_warns_of_invalid_replies_once(singing: tuple[str, Path]) -> None:
    printed, folder = singing
    for client in ("east", "west"):
        for number in (1, 2, 3):
            assert printed.count(f"{client}: no success yet, nothing to learn from: sits out round {number}\n") == 1
        assert printed.count(f"{client}, maze: almost all actions") == 1
    assert "in round 1 were invalid (100 % while exploring, 100 % while evaluating)" in printed
    assert printed.count("no update to aggregate; the adapter stays as it was") == 3

    shown = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"}).output
    assert "sat out" in shown
    assert shown.count("east, west") == 3


def test_a_site_that_withholds_its_counts_has_a_line_and_one_with_noise_tells_epsilon() -> None:
    console = Console(file=StringIO(), width=200)
    with Progress(console, 1) as progress:
        for client, state in (("east", ClientStatus.SENT), ("west", ClientStatus.NOTHING_TO_LEARN_FROM)):
            sent = state == ClientStatus.SENT
            told = {"epsilon": 3.6246} if sent else {}
            progress.record(
                ClientFinished(client=client, round=1, sent=sent, state=state, counts={}, metrics=told, scores=())
            )
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "round 1, east: validation success - %, counts withheld, epsilon 3.62",
        "round 1, west: validation success - %, counts withheld",
        "  west: nothing to learn from: sits out round 1",
    ]


def test_the_live_table_tells_measuring_from_exploring(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(rounds=1, exploration={"tasks": 3}, evaluation={"tasks": 2, "test_tasks": 0})
    console, seen = Console(file=StringIO(), width=200), []

    class Watching(Progress):
        def record(self, event: Event) -> None:
            super().record(event)
            if isinstance(event, EpisodesPlayed):
                table = self._table()
                cells = zip(*(column.cells for column in table.columns), strict=True)
                seen.append((table.title, [column.header for column in table.columns], [row[2:4] for row in cells]))

    with Watching(console, 1) as progress:
        fedse.run(experiment, tmp_path, trackers=[progress])
    (in_round, headers, rows), (afterwards, _, closing) = seen
    assert headers[2:5] == ["measured", "explored", "solved"]
    assert in_round.startswith("round 1 of 1, ") and rows == [("2/2", "3/3")] * 2
    assert afterwards == "measuring" and closing == [("2/2", "0/0")] * 2


def test_show_has_no_such_column_when_everybody_learned(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    folder = fedse.run(table_experiment(rounds=1), tmp_path).folder
    assert "sat out" not in CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "200"}).output
