"""`fedse new`: what it writes runs as it stands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse_command import command


@pytest.mark.slow
def test_a_new_world_keeps_its_promises_and_its_experiment_ends_far_above_the_floor(tmp_path: Path) -> None:
    assert command("new", "world", "my_own_world", folder=tmp_path).returncode == 0
    checked = command("worlds", "check", "my_own_world:MyOwnWorld", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    done = command("run", "my_own_world.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "runs/my_own_world/evaluations/test-0003.json").read_text())
    for row in result["worlds"]:
        assert row["success"] > 3 * row["floor"] > 0


@pytest.mark.parametrize("name", ["first", "2024", "null", "1e3"])
def test_a_new_experiment_is_one_and_has_the_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "experiment", name]).exit_code == 0
    experiment = fedse.load_experiment(tmp_path / f"{name}.yaml")
    assert (experiment.name, experiment.model.name, set(experiment.clients)) == (name, "nano", {"maze", "textcraft"})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["experiment", "a/b"], "'a/b' cannot be a name: use at most 100 letters"),
        (["experiment", "there"], "there.yaml exists already"),
        (["world", "My-World"], "cannot be the name of a module"),
        (["world", "json"], "there is a Python module called 'json' already"),
        (["world", "there"], "there.yaml exists already"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("mine")
    done = CliRunner().invoke(app, ["new", *arguments])
    assert done.exit_code == 2 and sentence in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]


def test_classes_in_the_current_folder_are_found_by_the_command_itself(tmp_path: Path) -> None:
    """`python -m fedse` has the folder on its path anyway; the installed command, like `-P`, does not."""
    (tmp_path / "beside.py").write_text(
        "from fedse.filters.success import Success\nclass Mine(Success):\n    '''Mine.'''\n"
    )
    (tmp_path / "typer.py").write_text("raise SystemExit('a file here hides a library')")
    program = "import sys; from fedse.cli import main; sys.argv = ['fedse', 'worlds', 'check', 'beside:Mine']; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "'beside:Mine': the class has no method 'reset'" in done.stderr


def test_a_new_experiment_is_the_one_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "experiment", "mine"]).exit_code == 0
    page = (Path(__file__).parents[2] / "README.md").read_text()
    (tmp_path / "readme.yaml").write_text(page.partition('```yaml title="experiment.yaml"\n')[2].partition("```")[0])
    assert fedse.load_experiment(tmp_path / "mine.yaml") == fedse.load_experiment(tmp_path / "readme.yaml")
