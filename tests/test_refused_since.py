"""A run that was begun before its parts were known not to go together: it is read and measured, and not gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fedse
from fedse.errors import BadInput
from fedse.experiments import options
from fedse.experiments.options import Experiment
from fedse_command import command

REFUSED = {"mix": "common_step", "aggregator": "mean"}


@pytest.fixture
def older(factored: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with pytest.raises(BadInput, match="there is none"):
        factored(**REFUSED)
    for name, checks in (("first", ()), ("second", options.CHECKS)):
        with monkeypatch.context() as before:
            before.setattr(options, "CHECKS", checks)
            experiment = factored(name=name, rounds=1, evaluation={"test_tasks": 4}, **(REFUSED if not checks else {}))
        fedse.run(experiment, tmp_path / "runs")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return tmp_path


def test_it_can_be_looked_at_compared_and_handed_out(older: Path) -> None:
    said = ""
    for given in ("runs", "show runs/first", "compare runs/first runs/second", "report runs/first"):
        done = command(*given.split(), folder=older)
        assert done.returncode == 0, (given, done.stderr)
        said += done.stdout
    assert "there is none" not in said
    # The adapter of this test has no base model that could use it; a run's trajectories are handed out like any other's.
    handed = command("export", "runs/first", "steps.parquet", folder=older)
    assert handed.returncode == 0 and (older / "steps.parquet").is_file(), handed.stderr
    assert "common_step" in (older / "report.html").read_text()


def test_it_can_be_measured_again(older: Path) -> None:
    again = command("eval", "runs/first", "--round", "0", folder=older)
    assert again.returncode == 0, again.stderr


def test_to_go_on_with_it_is_refused_and_changes_nothing(older: Path) -> None:
    path = older / "runs/first/experiment.yaml"
    before = path.read_bytes()
    done = command("run", path, "--set", "rounds=2", folder=older)
    assert done.returncode == 2 and "there is none" in done.stderr
    assert path.read_bytes() == before and not (older / "runs/first/rounds/0002").exists()


def test_another_experiment_of_its_name_is_told_that_it_is_another(
    older: Path, factored: Callable[..., Experiment]
) -> None:
    other = factored(name="first", rounds=1, evaluation={"test_tasks": 4})
    (older / "other.yaml").write_text(other.to_yaml())
    done = command("run", "other.yaml", folder=older)
    assert done.returncode == 2 and "another experiment (different: mix)" in done.stderr
