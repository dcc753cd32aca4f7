"""`fedse explored`: the attempts of a run by round and category."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.experience.buffer import Buffer
from fedse.experiments.options import Experiment
from fedse.models.chat import ByteChat


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
