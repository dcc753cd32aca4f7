"""Why a run stopped is told as long as something is missing, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.experiments.completion import is_complete, why_stopped
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.federation.server import Server
from fedse.page.answers import Answers
from fedse.page.shown import Shown
from fedse.runs.reading import RunView
from fedse.types import Split


def interrupt(experiment: Experiment, runs: Path, name: str) -> RunView:
    """A run that Ctrl-C ends in a step of its server."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Server, name, interrupted)
        fedse.run(experiment, runs)
    return RunView.existing(runs / experiment.name)


def evaluate(run: RunView, split: Split) -> None:
    """As `fedse eval` does it; the run's folder is given back, as at the end of a command."""
    with open_run(run.path) as federation:
        federation.server.evaluate(1, split)


def told(run: RunView) -> tuple[bool, bool, bool]:
    """Whether the run's page, `fedse show` and `why_stopped` say that it was interrupted."""
    why = why_stopped(run)
    problems = Answers({"table": Shown.of(run)}).view("table", "overview", {})["problems"]
    shown = CliRunner().invoke(app, ["show", str(run.path)])
    assert shown.exit_code == 0, shown.output
    return (
        any(
            item["text"].startswith("The run stopped ") and ": it was interrupted" in item["text"] for item in problems
        ),
        "The run stopped before it was done: it was interrupted" in " ".join(shown.output.split()),
        why is not None and why.startswith("it was interrupted"),
    )


EVERYWHERE, NOWHERE = (True, True, True), (False, False, False)


def test_a_run_that_was_evaluated_after_an_interrupt_lacks_nothing(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(rounds=1)
    run = interrupt(experiment, tmp_path, "evaluate_once")
    for split in experiment.closing_splits:
        assert told(run) == EVERYWHERE and not is_complete(run, experiment)
        evaluate(run, split)
    assert told(run) == NOWHERE and is_complete(run, experiment)
    # To go on with more rounds asks for more than there is.
    interrupt(table_experiment(rounds=2), tmp_path, "_save")
    assert told(run) == EVERYWHERE


def test_a_run_without_a_test_lacks_none(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = table_experiment(rounds=1, evaluation={"tasks": 5, "test_tasks": 0})
    run = interrupt(experiment, tmp_path, "evaluate_once")
    assert told(run) == EVERYWHERE
    evaluate(run, "validation")
    assert told(run) == NOWHERE
