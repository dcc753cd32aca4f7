"""Keys that have new names: a file is told them, a run that was stored under the old ones is read and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import fedse
from fedse.errors import BadInput
from fedse.experiments.old_keys import RENAMED, with_new_names
from fedse.experiments.options import Experiment, experiment_of, load_experiment
from fedse.runs import record
from fedse.runs.manifest import read_manifest, write_manifest

EXPERIMENT = {"name": "old", "model": "tiny", "clients": {"maze": {"worlds": ["maze"]}}}


@pytest.mark.parametrize("old", RENAMED)
def test_a_file_with_an_old_key_is_told_the_new_one(old: str, tmp_path: Path) -> None:
    group, key = old.split(".")
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, group: {key: 1}}))
    with pytest.raises(BadInput, match=rf"old\.yaml, line \d+: {old}: this key is called `{RENAMED[old]}` now\."):
        load_experiment(path)
    with pytest.raises(BadInput, match=rf"--set {old}=1: {old}: this key is called `{RENAMED[old]}` now\."):
        path.write_text(yaml.safe_dump(EXPERIMENT))
        load_experiment(path, [f"{old}=1"])


@pytest.mark.parametrize("old", RENAMED)
def test_every_new_name_is_a_key_of_today(old: str) -> None:
    group = old.split(".")[0]
    found = getattr(Experiment(**EXPERIMENT), group)
    assert RENAMED[old] in (found.options if group == "learner" else found.model_dump())


def test_options_of_another_learner_are_left_as_they_are() -> None:
    content: dict[str, Any] = {"learner": {"name": "mine:Learner", "batch": 3}, "evaluation": {"between": 2}}
    assert with_new_names(content) == {"learner": content["learner"], "evaluation": {"tasks_per_round": 2}}


def test_a_run_that_was_stored_under_old_names_is_resumed_to_the_same_adapter(
    table_experiment: Any, tmp_path: Path
) -> None:
    make = {"evaluation": {"tasks": 4, "tasks_per_round": 2, "test_tasks": 3}, "participation": {"min_clients": 2}}
    whole = fedse.run(table_experiment(rounds=3, **make), tmp_path / "whole")
    stopped = fedse.run(table_experiment(rounds=2, **make), tmp_path / "old")
    path = stopped.folder / "experiment.yaml"
    content = yaml.safe_load(path.read_text())
    for old, new in RENAMED.items():
        group, key = old.split(".")
        if new in content[group]:
            content[group][key] = content[group].pop(new)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    manifest = stopped.folder / "manifest.json"
    write_manifest(manifest, {**read_manifest(manifest), "experiment": record.file_digest(path)})

    assert experiment_of(stopped.folder).evaluation.tasks_per_round == 2
    resumed = fedse.run(table_experiment(rounds=3, **make), tmp_path / "old")
    assert resumed.adapter.digest() == whole.adapter.digest()
    assert "tasks_per_round: 2" in path.read_text() and "between" not in path.read_text()
