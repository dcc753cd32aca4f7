"""`benchmarks/unpaired.py`: arms side by side from counts alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.experiments.measuring import read_runs
from fedse.experiments.options import Experiment


@pytest.fixture
def program(benchmarks: Any) -> Any:
    return benchmarks("unpaired")


@pytest.mark.slow
def test_it_needs_no_episodes_and_agrees_with_them(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    folders = [
        fedse.run(
            table_experiment(
                name=f"{name}-s{seed}", seed=seed, rounds=1, start={"name": "demonstrations", "tasks": shown}
            ),
            tmp_path,
        ).folder
        for name, shown in (("few", 1), ("many", 6))
        for seed in (1, 2)
    ]
    _, measured = read_runs(folders, "test")
    for journal in tmp_path.rglob("episodes/test-*"):
        journal.unlink()
    found = program.gathered(folders, "few")
    for run in measured:
        arm, seed = run.name.split("-s")
        shares = [np.mean(list(tasks.values())) for tasks in run.worlds.values()]
        assert found["arms"][arm]["by_seed"][int(seed)] == pytest.approx(np.mean(shares))
    told = found["against_control"]["many"]
    assert told["seeds"] == [1, 2] and told["difference"] == pytest.approx(np.mean(told["by_seed"]))
    assert "| many |" in program.table(found) and json.dumps(found)


def test_with_one_seed_the_interval_is_that_of_two_independent_shares(program: Any) -> None:
    ours, theirs = {1: {"maze": (0.6, 200), "wordle": (0.4, 100)}}, {1: {"maze": (0.5, 200), "wordle": (0.3, 100)}}
    found = program.difference(ours, theirs)
    variances = [0.6 * 0.4 / 200, 0.4 * 0.6 / 100, 0.5 * 0.5 / 200, 0.3 * 0.7 / 100]
    reach = 1.96 * np.sqrt(sum(variances)) / 2
    assert found["interval"] == pytest.approx([0.1 - reach, 0.1 + reach], abs=0.006)
    assert "t_interval" not in found


def test_seeds_that_disagree_make_it_wider(program: Any) -> None:
    def arm(*shares: float) -> dict[int, dict[str, tuple[float, int]]]:
        return {seed: {"maze": (share, 200)} for seed, share in enumerate(shares)}

    agreed, split = (program.difference(arm(*ours), arm(0.4, 0.4)) for ours in ((0.5, 0.5), (0.7, 0.3)))
    assert agreed["difference"] == pytest.approx(split["difference"])
    assert np.ptp(split["interval"]) > 2 * np.ptp(agreed["interval"])
    assert split["t_interval"][0] == pytest.approx(0.1 - 12.706 * 0.2, abs=0.001)


def test_a_run_without_an_evaluation_is_named(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    folder = fedse.run(
        table_experiment(name="few-s1", rounds=1, evaluation={"tasks": 4, "test_tasks": 0}), tmp_path
    ).folder
    with pytest.raises(SystemExit, match="few-s1: wants a name such as imitation-s1, and a test evaluation"):
        program.gathered([folder], "few")


@pytest.mark.slow
def test_a_record_stands_for_a_run_whose_folder_is_gone(
    program: Any, benchmarks: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    recipe, kept = tmp_path / "recipe.yaml", tmp_path / "kept.json"
    folders = [
        fedse.run(table_experiment(name=f"few_s{seed}", seed=seed, rounds=1), tmp_path).folder for seed in (1, 2)
    ]
    recipe.write_text((folders[0] / "experiment.yaml").read_text().replace("rounds: 1", "rounds: 7"))
    records = benchmarks("records")
    runs = {folder.name: records.recorded(folder, recipe, ["rounds=1"], []) for folder in folders}
    kept.write_text(json.dumps({"settings": ["rounds=1"], "runs": runs}))
    noted = [kept / folder.name for folder in folders]
    assert [program.of_record(path) for path in noted] == [program.of_run(folder) for folder in folders]
    assert runs["few_s2"]["settings"] == ["seed=2"] and runs["few_s2"]["adapter_megabytes_up"] >= 0
    with pytest.raises(SystemExit, match=r"it is not .*recipe.yaml with seed=1"):
        records.recorded(folders[0], recipe, [], [])
    with pytest.raises(SystemExit, match="as many tasks"):
        records.tried({"worlds": [{"episodes": 20}, {"episodes": 10}]})
    (row,) = benchmarks("costs").by_arm(noted).items()
    assert row == ("few", list(runs.values()))
    with pytest.raises(SystemExit, match=r"few_s3: wants FILE/NAME-s1 of a record in that file. It has few_s1, few_s2"):
        benchmarks("costs").by_arm([kept / "few_s3"])
    with pytest.raises(SystemExit, match="no record of few_s3; it has few_s1, few_s2"):
        program.gathered([kept / "few_s3"], "few")
