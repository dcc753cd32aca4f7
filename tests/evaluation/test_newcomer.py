"""`benchmarks/newcomer.py`: the first day of a site that joins late, beside the same site alone, task by task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.experiments.options import Experiment
from short_maze import SHORT_MAZE

FIRST_DAY = f"test-0001-{SHORT_MAZE['name']}"


@pytest.fixture
def program(benchmarks: Any) -> Any:
    return benchmarks("newcomer")


def test_differences_are_over_the_seeds_and_tasks_that_both_have(program: Any) -> None:
    ours = {1: {"a": True, "b": True, "c": False}, 2: {"a": True, "b": True}, 3: {"a": False}}
    theirs = {1: {"a": False, "b": True}, 2: {"a": False, "b": True}}
    told, p = program.paired(ours, theirs)
    assert (told["difference"], told["by_seed"], told["tasks"]) == (50.0, {"1": 50.0, "2": 50.0}, 2)
    assert p == 1.0
    assert told["interval"][0] <= 50.0 <= told["interval"][1] and told["t_interval"] == [50.0, 50.0]
    above = program.above_chance(theirs, 0.25)
    assert above["difference"] == 25.0 and above["t_interval"] == [25.0, 25.0]
    assert above["interval"][0] < 25.0 < above["interval"][1], "which tasks there are is luck too"
    with pytest.raises(SystemExit, match="no seed in common"):
        program.paired({1: {"a": True}}, {2: {"a": True}})


@pytest.mark.slow
def test_a_first_day_is_what_eval_played_with_the_adapter_that_the_site_found(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    sites = {"east": {"worlds": [SHORT_MAZE]}, "late": {"worlds": [SHORT_MAZE], "joins": 2, "start": "none"}}
    evaluation = {"tasks": 5, "tasks_per_round": 0, "test_tasks": 12}
    joined, alone = [], []
    for seed in (1, 2):
        joined.append(
            fedse.run(
                table_experiment(name=f"joined_{seed}", seed=seed, clients=sites, evaluation=evaluation), tmp_path
            ).folder
        )
        played = CliRunner().invoke(app, ["eval", str(joined[-1]), "--round", "1", "--world", SHORT_MAZE["name"]])
        assert played.exit_code == 0, played.output
        alone.append(
            fedse.run(
                table_experiment(
                    name=f"alone_{seed}",
                    seed=seed,
                    clients={"late": {"worlds": [SHORT_MAZE]}},
                    start={"name": "demonstrations", "tasks": 1},
                    evaluation=evaluation,
                ),
                tmp_path,
            ).folder
        )
    told = program.compared(joined, alone, alone)
    assert (told["site"], told["world"]) == ("late", SHORT_MAZE["name"])
    chance = json.loads((joined[0] / "evaluations/test-0002.json").read_text())["worlds"][0]["floor"]
    assert told["random"] == round(100 * chance, 1) > 0
    assert set(told["runs"]) == {"joined_1", "joined_2", "alone_1", "alone_2"}
    assert told["runs"]["joined_1"]["learned_tokens_of_the_site"] <= told["runs"]["joined_1"]["learned_tokens"]
    # Each arm stands for two here, so that the correction multiplies the least p-value of four.
    ps = {name: pair["p_holm"] for name, pair in told["differences"].items()}
    arms = [(program.solved(joined, "late", name), program.solved(alone, "late")) for name in (FIRST_DAY, None)]
    least = min(program.paired(*pair)[1] for pair in arms)
    assert len(ps) == 4 and min(ps.values()) == pytest.approx(min(1.0, 4 * least), rel=0.01)
    with pytest.raises(SystemExit, match="another run has seed 1 too"):
        program.solved([*joined, joined[0]], "late")
    first, last, by_itself = (
        [_success(run / "evaluations" / name) for run in runs]
        for runs, name in (
            (joined, f"test-0001-{told['world']}.json"),
            (joined, "test-0002.json"),
            (alone, "test-0002.json"),
        )
    )
    for name, shares in (("first day", first), ("after its rounds", last), ("alone", by_itself)):
        assert list(told["success"][name].values()) == pytest.approx(shares, abs=0.06)
    assert first != by_itself
    apart = [one - other for one, other in zip(first, by_itself, strict=True)]
    assert list(told["differences"]["first day, alone"]["by_seed"].values()) == pytest.approx(apart, abs=0.06)
    assert told["differences"]["first day, alone"]["tasks"] == 12


def _success(evaluation: Path) -> float:
    rows = json.loads(evaluation.read_text())["worlds"]
    return next(100 * float(row["success"]) for row in rows if row["client"] == "late")
