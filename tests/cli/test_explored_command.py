"""`fedse explored`: the attempts of a run by round and category."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import BadInput
from fedse.evaluation.explored_plot import MOST, Tries, _draw, by_ease, draw_explored
from fedse.experience.buffer import Buffer
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat


@pytest.mark.slow
def test_attempts_by_round_and_category(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    run = fedse.run(table_experiment(), tmp_path).folder
    told = CliRunner().invoke(app, ["explored", str(run), "--client", "east", "--json"], catch_exceptions=False)
    rows = json.loads(told.stdout)
    buffer = Buffer(run / "clients/east/buffer.sqlite", "east", ByteChat().fingerprint)
    attempts = buffer.attempts(before=1000)
    buffer.close()
    tries = Counter((item.round, item.category) for item in attempts)
    wins = Counter((item.round, item.category) for item in attempts if item.outcome == "success")
    assert {(row["round"], row["category"]): row["tries"] for row in rows} == tries
    assert {(row["round"], row["category"]): row["successes"] for row in rows if row["successes"]} == wins
    assert {row["client"] for row in rows} == {"east"} and sum(row["tries"] for row in rows) == 40

    shown = CliRunner().invoke(app, ["explored", str(run)], catch_exceptions=False)
    assert "east, maze: tries (% solved)" in shown.stdout and "west, maze" in shown.stdout
    first = rows[0]
    assert f"{first['tries']} ({100 * first['successes'] / first['tries']:.0f})" in shown.stdout
    wrong = CliRunner().invoke(app, ["explored", str(run), "--client", "easst"])
    assert wrong.exit_code == 2 and "did you mean 'east'" in wrong.output


@pytest.mark.slow
def test_several_runs_in_one_picture(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    runs = [str(fedse.run(table_experiment(seed=seed, rounds=1), tmp_path / str(seed)).folder) for seed in (0, 1)]
    target = tmp_path / "explored.png"
    shown = CliRunner().invoke(
        app, ["explored", *runs, "--client", "east", "--picture", str(target)], catch_exceptions=False
    )
    assert shown.stdout.count("tries") == 2, "a table for each run"
    height, width = matplotlib.image.imread(target).shape[:2]
    assert width > height > 100, "two panels, side by side"
    rows = [Tries(str(number), "c", 1, "w", "", 1, 0) for number in range(MOST + 1)]
    with pytest.raises(BadInput, match=f"would have {MOST + 1}"):
        draw_explored(rows, tmp_path / "many.png")


def test_the_picture_stacks_the_shares_of_each_round_from_easy_to_hard() -> None:
    rows = [
        Tries("r", "c", 1, "w", "hard", 3, 0),
        Tries("r", "c", 1, "w", "easy", 1, 1),
        Tries("r", "c", 2, "w", "hard", 8, 2),
    ]
    axis = Figure().subplots()
    _draw(axis, rows, by_ease(rows), {"easy": "red", "hard": "blue"})
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in axis.patches]
    assert bars == [(1, 0, 25), (2, 0, 0), (1, 25, 75), (2, 0, 100)]
