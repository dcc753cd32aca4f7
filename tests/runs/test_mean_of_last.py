"""The mean of the last adapters: by hand, in what is evaluated and exported, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.errors import BadInput
from fedse.evaluation.best_round import best_round
from fedse.evaluation.curves import curves
from fedse.evaluation.forgetting import forgetting
from fedse.evaluation.generations import measured
from fedse.evaluation.side_by_side import side_by_side
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import mean_of_last
from fedse.types import Adapter
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
TWO = {"tasks": 10, "test_tasks": 0, "mean_of_last": 2}


def of_round(folder: Path, number: int) -> Adapter:
    return read_adapter(folder / f"rounds/{number:04d}/adapter")


def by_hand(folder: Path, *numbers: int) -> dict[str, Any]:
    found = [of_round(folder, number).tensors for number in numbers]
    return {name: sum(one[name].astype(np.float64) for one in found) / len(found) for name in found[0]}


def test_the_mean_is_over_the_last_rounds_with_the_beginning(factored: Make, tmp_path: Path) -> None:
    run = RunFolder.existing(fedse.run(factored(aggregator="fedexp"), tmp_path).folder)
    for number, rounds, wanted in ((3, 2, (2, 3)), (3, 3, (1, 2, 3)), (1, 2, (0, 1)), (2, 9, (0, 1, 2))):
        found = mean_of_last(run, number, rounds).tensors
        for name, tensor in by_hand(run.path, *wanted).items():
            np.testing.assert_allclose(found[name], tensor, rtol=1e-6)
            assert found[name].dtype == np.float32
    assert mean_of_last(run, 3, 1).digest() == of_round(run.path, 3).digest()
    assert mean_of_last(run, 0, 2).digest() == of_round(run.path, 0).digest()


@pytest.mark.slow
def test_the_mean_is_what_is_played_and_exported_in_the_end(factored: Make, tmp_path: Path) -> None:
    plain = fedse.run(factored(aggregator="fedexp"), tmp_path / "plain")
    asked = fedse.run(factored(aggregator="fedexp", evaluation=TWO), tmp_path / "asked")
    assert asked.adapter.digest() == plain.adapter.digest(), "rounds are those of a run without it"
    for number in (1, 2, 3):
        reports = [json.loads((run.folder / f"rounds/{number:04d}/report.json").read_text()) for run in (plain, asked)]
        assert reports[0]["evaluation"] == reports[1]["evaluation"]
    mean = mean_of_last(RunFolder.existing(asked.folder), 3, 2)
    episodes = Journal(asked.folder / "clients/east/episodes").read("validation-0003")
    assert {item.adapter for item in episodes} == {mean.digest()}
    assert asked.validation["mean_of_last"] == 2 and "mean_of_last" not in plain.validation
    done = CliRunner().invoke(app, ["export", str(asked.folder), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert read_adapter(tmp_path / "out").digest() == mean.digest() != asked.adapter.digest()


def test_a_measured_mean_is_not_measured_again(factored: Make, tmp_path: Path) -> None:
    experiment = factored(evaluation={**TWO, "after_learning": 3})
    folder = fedse.run(experiment, tmp_path).folder
    stored = folder / "evaluations/validation-0003.json"
    before = stored.stat().st_mtime_ns
    fedse.run(experiment, tmp_path)
    assert stored.stat().st_mtime_ns == before
    pairs = side_by_side(RunFolder.existing(folder))["east: maze"]
    assert pairs[2].as_broadcast is not None
    assert pairs[3].as_broadcast is None, "the mean over rounds is not what came back"
    with open_run(folder) as federation:
        assert federation.server.evaluate(2, "validation")["mean_of_last"] == 2


@pytest.mark.slow
def test_a_run_that_was_extended_tells_what_a_whole_one_tells(factored: Make, tmp_path: Path) -> None:
    """Success of the adapters on the way, also where the mean up to one of them was measured before the run went on."""
    asked: dict[str, Any] = {
        "clients": {"east": {"worlds": ["maze"]}, "west": {"worlds": [SHORT_MAZE]}},
        "evaluation": {"tasks": 20, "test_tasks": 0, "mean_of_last": 3},
        "probes": [{"name": "drift", "every": 1, "tasks": 20}],
        "exploration": {"tasks": 10, "attempts": 2},
    }
    whole = RunView.existing(fedse.run(factored(rounds=4, **asked), tmp_path / "whole").folder)
    for rounds in (2, 4):
        view = RunView.existing(fedse.run(factored(rounds=rounds, **asked), tmp_path / "extended").folder)
    assert view.digest_of(4) == whole.digest_of(4)
    closing, report = view.evaluation("validation", 2), view.report(3)
    assert closing and report and closing["mean_of_last"] == 3
    shares = [[row["success"] for row in told["worlds"]] for told in (closing, report["evaluation"])]
    assert shares[0] != shares[1], "otherwise this tells nothing"
    assert curves(view) == curves(whole)
    assert forgetting(view) == forgetting(whole)
    assert measured(view) == measured(whole)
    assert best_round(view) == best_round(whole)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"method": "local_se"}, "with `sharing: none` there are none"),
        ({"mix": "fedalt"}, "works on what each client sent in the last round"),
        ({"aggregator": "flora"}, "makes new factors in every round"),
        ({"aggregator": "flexlora"}, "makes new factors in every round"),
        ({"aggregator": "compress_then_merge"}, "makes new factors in every round"),
        ({"aggregator": "tsv_merge"}, "makes new factors in every round"),
    ],
)
def test_where_there_is_no_sensible_mean_it_is_refused(factored: Make, changes: dict[str, Any], told: str) -> None:
    factored(**changes)
    with pytest.raises(BadInput, match=told):
        factored(evaluation=TWO, **changes)
