"""How much of a lesson comes from which world, against the buffer that it was read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import BadInput
from fedse.evaluation.learned_shares import learned_shares
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
TELLING = {"tasks": 3, "test_tasks": 0, "learned_by_world": True}
ONE = {"worlds": [SHORT_MAZE]}
TWO = {"worlds": [SHORT_MAZE, {**SHORT_MAZE, "turn_limit": 6}]}


def shares_by_hand(folder: Path, client: str, number: int) -> dict[str, float]:
    held = [item for item in read_file(folder / f"clients/{client}/buffer.sqlite") if item.round <= number]
    tokens = {label: sum(item.agent_tokens for item in held if item.world == label) for label in ("maze", "maze#2")}
    return {label: count / sum(tokens.values()) for label, count in tokens.items()}


@pytest.mark.slow
def test_shares_are_those_of_the_tokens_in_the_buffer(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(clients={"both": TWO, "one": ONE}, evaluation=TELLING, rounds=3)
    result = fedse.run(experiment, tmp_path / "told")
    found = learned_shares(RunFolder.existing(result.folder))
    assert list(found) == ["both: maze", "both: maze#2"], "a site with one world has nothing to tell"
    for number in (1, 2, 3):
        for label, share in shares_by_hand(result.folder, "both", number).items():
            assert found[f"both: {label}"][number] == pytest.approx(share)
    assert 0.5 < found["both: maze"][3] < 1, "more turns give more successes"
    shown = CliRunner().invoke(app, ["show", str(result.folder)], env={"COLUMNS": "160"}).output
    assert "Share of the learned tokens" in shown and f"{100 * found['both: maze'][3]:.1f}" in shown
    silent = table_experiment(
        clients={"both": TWO, "one": ONE}, evaluation={**TELLING, "learned_by_world": False}, rounds=3
    )
    plain = fedse.run(silent, tmp_path / "plain")
    assert plain.adapter.digest() == result.adapter.digest()
    assert "probes" not in json.loads((plain.folder / "rounds/0001/report.json").read_text())["clients"]["both"]


def test_a_pooled_site_tells_of_the_worlds_of_all(table_experiment: Make, tmp_path: Path) -> None:
    folder = fedse.run(table_experiment(method="centralized_se", evaluation=TELLING), tmp_path).folder
    found = learned_shares(RunFolder.existing(folder))
    assert list(found) == ["pooled: maze", "pooled: maze#2"]
    assert sum(shares[2] for shares in found.values()) == pytest.approx(1)


def test_where_every_site_has_one_world_it_is_refused(table_experiment: Make) -> None:
    with pytest.raises(BadInput, match=r"leave `evaluation\.learned_by_world` out"):
        table_experiment(evaluation=TELLING)


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
def test_flower_carries_the_shares(table_experiment: Make, tmp_path: Path) -> None:
    runs = [
        fedse.run(
            table_experiment(clients={"both": TWO, "one": ONE}, evaluation=TELLING, engine=engine), tmp_path / engine
        )
        for engine in ("local", "flower")
    ]
    here, there = (learned_shares(RunFolder.existing(run.folder)) for run in runs)
    assert here == there and here
