"""`fedse demo`: the packaged experiment runs and ends with what people look at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedse.cli import app
from fedse.cli.demo import WHAT_IT_LEARNS
from fedse.cli.tables import change_table

WORLDS = {"maze", "textcraft", "babyai", "webshop"}


def test_it_is_the_experiment_that_was_promised() -> None:
    from importlib.resources import files

    from fedse.experiments.options import load_experiment

    demo = load_experiment(str(files("fedse.cli") / "demo.yaml"))
    assert {part.name for client in demo.clients.values() for part in client.worlds} == WORLDS == set(demo.clients)
    assert (demo.model.name, demo.start.name, demo.rounds >= 5) == ("nano", "none", True)
    assert (demo.evaluation.tasks, demo.evaluation.tasks_per_round, demo.evaluation.test_tasks) == (40, 10, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_short_one_runs_to_its_table_and_picture(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    settings = ["rounds=1", "exploration.tasks=2", "evaluation.tasks=2", "model.threads=1"]
    arguments = ["demo", "--runs", str(tmp_path), *(part for setting in settings for part in ("--set", setting))]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert " ".join(result.output.split()).startswith(WHAT_IT_LEARNS), (
        "what nano knows, what it learns, and how one can tell"
    )
    assert "before and after" in result.output and "macro" in result.output
    assert (tmp_path / "demo" / "success.png").is_file()
    report = json.loads((tmp_path / "demo" / "rounds" / "0001" / "report.json").read_text())
    assert set(report["clients"]) == WORLDS
    assert not list((tmp_path / "demo" / "evaluations").glob("test-*")), "the demo asks for no test"
    refused = CliRunner().invoke(app, ["eval", str(tmp_path / "demo")])
    assert refused.exit_code == 2 and "asks for no test" in refused.output
    assert not list((tmp_path / "demo" / "evaluations").glob("test-*"))


def row(adapter: int, success: float | None) -> dict[str, object]:
    shown = {"success": success, "interval": (0.1, 0.9), "floor": 0.0, "ceiling": 1.0, "episodes": 40}
    return {"adapter": adapter, **shown}


def test_a_site_that_joins_later_is_no_part_of_the_mean() -> None:
    table = change_table({"maze": [row(0, 0.0), row(3, 0.5)], "late": [row(2, 0.6), row(3, 0.7)]})
    assert list(table.columns[1].cells) == ["0.0", "60.0 (round 3)"]
    assert str(table.caption).startswith("macro 0.0 before, 50.0 after: +50.0 points; without those first measured")


def test_the_change_is_from_the_first_to_the_last_adapter() -> None:
    table = change_table({"maze": [row(0, 0.25), row(1, 0.9), row(2, 0.5)], "broken": [row(0, None), row(1, 0.5)]})
    assert [next(iter(column.cells)) for column in table.columns[:6]] == [
        "maze",
        "25.0",
        "10-90",
        "50.0",
        "10-90",
        "+25.0",
    ]
    assert table.row_count == 1
    assert table.caption == "macro 25.0 before, 50.0 after: +25.0 points"
