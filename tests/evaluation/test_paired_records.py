"""`benchmarks/records.py` and `benchmarks/paired.py`: runs are compared by what is left of them as by their folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import fedse
from fedse.evaluation.comparison import compare
from fedse.experiments.measuring import read_runs
from fedse.experiments.options import Experiment


@pytest.fixture
def programs(benchmarks: Any) -> Any:
    return SimpleNamespace(records=benchmarks("records"), paired=benchmarks("paired"))


def recorded(programs: Any, folder: Path, recipe: Path, name: str, experiment: Experiment) -> Path:
    """One run, and its record under its name."""
    run = Path(fedse.run(experiment, folder).folder)
    recipe.write_text(yaml.safe_dump(experiment.model_dump(mode="json", exclude={"name", "seed"}, exclude_none=True)))
    file = folder / "records.json"
    kept = json.loads(file.read_text()) if file.exists() else {"runs": {}}
    kept["runs"][name] = programs.records.recorded(run, recipe, [], [])
    file.write_text(json.dumps(kept))
    return file / name


@pytest.mark.slow
def test_records_are_compared_as_the_runs_are(
    programs: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    paths = [
        recorded(
            programs,
            tmp_path,
            tmp_path / "recipe.yaml",
            f"{arm}-s{seed}",
            table_experiment(
                name=f"{arm}-s{seed}", seed=seed, rounds=1, start={"name": "demonstrations", "tasks": shown}
            ),
        )
        for arm, shown in (("few", 1), ("many", 6))
        for seed in (1, 2)
    ]
    folders = [tmp_path / path.name for path in paths]
    whole = compare(read_runs(folders, "test")[1], "few-s1")
    for folder in folders:
        shutil.rmtree(folder)
    left = compare([programs.paired.read(path, []) for path in paths], "few")
    assert [group.label for group in left.groups] == ["few", "many"]
    for ours, theirs in zip(left.groups, whole.groups, strict=True):
        assert ours.macro_by_seed() == theirs.macro_by_seed() and ours.macro()[1] == theirs.macro()[1]
        assert [run.costs[1].learned_tokens for run in ours.runs] == [
            run.costs[1].learned_tokens for run in theirs.runs
        ]
        assert [run.costs[1].bytes for run in ours.runs] == [run.costs[1].bytes for run in theirs.runs]
    assert left.pairs[0].found == whole.pairs[0].found and left.pairs[0].p == whole.pairs[0].p
    assert left.pairs[0].found.macro != 0


def test_what_cannot_be_paired_is_said(programs: Any, tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    record = {"solved": {"maze": "01"}, "tasks": {"maze": "a"}, "validation_entering_each_round": [{}]}
    record |= {
        "made_with": [],
        "explored_agent_tokens": 1,
        "learned_tokens": 1,
        "minutes_of_rounds": 1,
        "adapter_bytes_up_and_down": 0,
    }
    other = {**record, "tasks": {"maze": "b"}}
    file.write_text(json.dumps({"runs": {"mean-s1": record, "alone-s1": other, "old-s1": {}, "mean": record}}))
    read = programs.paired.read
    with pytest.raises(fedse.errors.BadInput, match="tasks are not the same"):
        compare([read(file / "mean-s1", []), read(file / "alone-s1", [])], "alone")
    for name, said in (("old-s1", "only how many"), ("mean", "ends with its seed"), ("none-s1", "no record")):
        with pytest.raises(SystemExit, match=said):
            read(file / name, [])
    with pytest.raises(SystemExit, match="--leave-out wordle"):
        read(file / "mean-s1", ["wordle"])
    assert not read(file / "mean-s1", ["maze"]).worlds
