"""Keys that have new names: a file is told them, a run that was stored under the old ones is read and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedse
from fedse.apps.site_file import load_site
from fedse.errors import BadInput
from fedse.experiments.old_keys import with_new_names
from fedse.experiments.options import Experiment, experiment_of, load_experiment
from fedse.page.shown import Shown
from fedse.runs import record
from fedse.runs.manifest import read_manifest, write_manifest
from fedse.runs.reading import RunView

EXPERIMENT = {"name": "old", "model": "tiny", "clients": {"maze": {"worlds": ["maze"]}}}
RENAMED = {
    "evaluation.between": "tasks_per_round",
    "participation.share": "fraction",
    "participation.least": "min_clients",
    "buffer.cap": "max_trajectories",
    "buffer.per_task": "max_per_task",
    "limits.error_share": "max_error_share",
    "limits.broken": "on_errors",
    "learner.batch": "batch_size",
    "learner.clip": "max_grad_norm",
    "learner.proximal": "proximal_mu",
    "learner.above": "min_familiarity",
    "learner.most": "max_familiarity",
    "sending.secure_sum.least": "min_sites",
    "mix.least": "min_silhouette",
    "judge.most": "max_tokens",
}
"""What runs and files out there have, which no edit of the table in the package changes."""
PATHS = {
    "learner.batch": "fedse.learners.imitation:Imitation",
    "learner.clip": "fedse.learners.imitation:Imitation",
    "learner.proximal": "fedse.learners.imitation:Imitation",
    "learner.above": "fedse.learners.familiar:FamiliarImitation",
    "learner.most": "fedse.learners.familiar:FamiliarImitation",
    "mix.least": "fedse.mixes.clustered:Clustered",
    "judge.most": "fedse.judges.few_tokens:FewTokens",
}
NAMED = {
    "learner.above": {"learner": "familiar"},
    "learner.most": {"learner": "familiar"},
    "mix.least": {"mix": "clustered"},
    "judge.most": {"judge": "few_tokens"},
}
"""Plug-ins that have to be chosen before their keys are looked at."""


def written(old: str, value: Any, *, renamed: bool = False) -> dict[str, Any]:
    """An experiment with one key more."""
    *groups, key = old.split(".")
    inner: dict[str, Any] = {RENAMED[old] if renamed else key: value}
    for group in reversed(groups):
        inner = {group: {**({"name": NAMED[old][group]} if old in NAMED else {}), **inner}}
    return {**EXPERIMENT, **inner}


@pytest.mark.parametrize("old", RENAMED)
def test_a_file_with_an_old_key_is_told_the_new_one(old: str, tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump(written(old, 1)))
    with pytest.raises(BadInput, match=rf"old\.yaml, line \d+: {old}: this key is called `{RENAMED[old]}` now\."):
        load_experiment(path)
    with pytest.raises(BadInput, match=rf"--set {old}=1: {old}: this key is called `{RENAMED[old]}` now\."):
        path.write_text(yaml.safe_dump(EXPERIMENT | NAMED.get(old, {})))
        load_experiment(path, [f"{old}=1"])


@pytest.mark.parametrize("old", RENAMED)
def test_what_was_stored_under_an_old_key_is_read_under_one_of_today(old: str) -> None:
    new = ".".join([*old.split(".")[:-1], RENAMED[old]])
    assert with_new_names(written(old, 7)) == written(old, 7, renamed=True)
    with pytest.raises(BadInput, match=new) as refused:
        Experiment.model_validate(written(old, "no value of any of these keys", renamed=True))
    assert "unknown key" not in str(refused.value)


def test_a_file_with_what_there_was_before_a_mix_is_told_the_mix_and_a_run_keeps_its_private_adapters(
    tmp_path: Path,
) -> None:
    old = {**EXPERIMENT, "personal": {"rank": 2}}
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(old))
    with pytest.raises(BadInput, match=r"personal: this key is called `mix: {name: personal, rank: \.\.\.}` now\."):
        load_experiment(path)
    mix = experiment_of(tmp_path).mix
    assert mix.name == "personal" and mix.options == {"rank": 2}
    assert with_new_names({"personal": {"rank": 0}}) == {}


@pytest.mark.parametrize("value", [{"rank": 0}, {}])
def test_a_file_that_had_no_private_adapters_is_told_to_leave_the_key_out(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, "personal": value}))
    with pytest.raises(BadInput, match=r"personal: leave this key out: rank 0 stood for no private adapter") as refused:
        load_experiment(path)
    assert "called" not in str(refused.value)


def test_a_key_that_another_plug_in_never_had_is_unknown_to_it(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(yaml.safe_dump({**EXPERIMENT, "mix": {"name": "personal", "least": 1}}))
    with pytest.raises(BadInput, match=r"mix\.least: unknown key"):
        load_experiment(path)


def test_options_of_another_plug_in_are_left_as_they_are() -> None:
    content: dict[str, Any] = {
        "learner": {"name": "mine:Learner", "batch": 3},
        "judge": {"name": "mine:Judge", "most": 3},
        "evaluation": {"between": 2},
    }
    assert with_new_names(content) == {**content, "evaluation": {"tasks_per_round": 2}}


@pytest.mark.parametrize(("old", "path"), PATHS.items())
def test_a_class_that_was_stored_by_its_path_is_the_one_with_the_short_name(old: str, path: str) -> None:
    group, key = old.split(".")
    assert with_new_names({group: {"name": path, key: 1}}) == {group: {"name": path, RENAMED[old]: 1}}


def test_a_path_to_another_class_of_fedse_or_to_none_is_left_as_it_is() -> None:
    for name in (
        "fedse.mixes.common_step:CommonStep",
        "fedse.mixes.clustered:Nobody",
        "fedse.nowhere:Clustered",
        ["x"],
    ):
        content = {"mix": {"name": name, "least": 1}}
        assert with_new_names(content) == content


def test_to_look_at_a_run_loads_no_class_of_somebodys_own_for_an_old_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebodys_mix.py").write_text("class Mix: ...")
    monkeypatch.syspath_prepend(tmp_path)
    mix = {"name": "somebodys_mix:Mix", "least": 1}
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "mix": mix}))
    assert experiment_of(tmp_path, stored=True).mix.options == {"least": 1}
    assert "somebodys_mix" not in sys.modules


def test_a_sites_file_with_an_old_key_is_told_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    own = {"name": "maze", "hub": "localhost:9092", "worlds": ["maze"], "secure_sum": {"sites": {"a": "b"}, "least": 2}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump({"experiment": "experiment.yaml", **own}))
    with pytest.raises(BadInput, match=r"secure_sum\.least: this key is called `min_sites` now\."):
        load_site(tmp_path / "site.yaml")


def with_old_names(content: dict[str, Any]) -> set[str]:
    """Writes an experiment's keys as they once were; which ones."""
    written = set()
    for old, new in RENAMED.items():
        *groups, key = old.split(".")
        options = content
        for group in groups:
            options = options[group] or {}
        if new in options:
            options[key] = options.pop(new)
            written.add(old)
    return written


LIBRARY = {
    "mix": {"name": "clustered", "min_silhouette": 0.2},
    "judge": {"name": PATHS["judge.most"], "weight": 0.4, "max_tokens": 60},
}
SUM = {"sending": {"secure_sum": {"min_sites": 2}}, "participation": {"min_clients": 2}}


@pytest.mark.parametrize(
    ("changes", "reached"),
    [(LIBRARY, {"mix.least", "judge.most"}), (SUM, {"sending.secure_sum.least", "participation.least"})],
    ids=["library", "sum"],
)
def test_a_run_that_was_stored_under_old_names_is_resumed_to_the_same_adapter(
    changes: dict[str, Any], reached: set[str], factored: Any, tmp_path: Path
) -> None:
    make = {"evaluation": {"tasks": 4, "tasks_per_round": 2, "test_tasks": 3}, **changes}
    whole = fedse.run(factored(rounds=3, **make), tmp_path / "whole")
    stopped = fedse.run(factored(rounds=2, **make), tmp_path / "old")
    path = stopped.folder / "experiment.yaml"
    as_today = path.read_text()
    content = yaml.safe_load(as_today)
    assert with_old_names(content) >= {"evaluation.between", *reached}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    manifest = stopped.folder / "manifest.json"
    write_manifest(manifest, {**read_manifest(manifest), "experiment": record.file_digest(path)})

    assert experiment_of(stopped.folder).to_yaml() == as_today
    assert load_experiment(path).to_yaml() == as_today, "the file that fedse names for resuming"
    view = RunView.existing(stopped.folder)
    assert Shown.of(view).experiment.to_yaml() == Shown.of(view, own_worlds=True).experiment.to_yaml() == as_today
    resumed = fedse.run(factored(rounds=3, **make), tmp_path / "old")
    assert resumed.adapter.digest() == whole.adapter.digest()
    assert path.read_text() == as_today.replace("rounds: 2\n", "rounds: 3\n")
