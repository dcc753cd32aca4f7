"""A run says with what it was made, and where it went on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.events import Evaluated, MadeWith, RoundFinished
from fedse.experiments.options import Experiment
from fedse.models.table import Table
from fedse.runs import provenance
from fedse.runs.provenance import describe, in_words, makers
from fedse.runs.reading import RunView


def test_versions_device_and_precision_are_named(tiny: Any) -> None:
    torch = pytest.importorskip("torch")
    found = describe(tiny)
    assert (found["fedse"], found["python"]) == (fedse.__version__, platform.python_version())
    assert (found["torch"], found["threads"]) == (torch.__version__, torch.get_num_threads())
    assert (found["device"], found["precision"]) == ("cpu", "float32")
    assert f"torch {found['torch']}" in in_words(found) and "cpu, float32" in in_words(found)
    assert "device" not in describe(None)


class Unusual:
    """Of a model that is no torch module."""

    def parameters(self) -> dict[str, Any]:
        return {"layers": {"weight": 1}}


class UnusualTable(Table):
    network = Unusual()


class FailingTable(Table):
    @property
    def network(self) -> Any:
        raise RuntimeError("not yet")


@pytest.mark.parametrize(("model", "noted"), [(UnusualTable, True), (FailingTable, False)])
def test_a_model_of_ones_own_is_never_stopped_by_it(
    table_experiment: Callable[..., Experiment], tmp_path: Path, model: type, noted: bool
) -> None:
    name = f"{__name__}:{model.__name__}"
    fedse.run(table_experiment(rounds=1, model={"name": name, "rows": 512}), tmp_path)
    assert [bool(maker) for maker in RunView.existing(tmp_path / "table").makers()] == [noted]


@pytest.fixture
def fresh_commit() -> Iterator[None]:
    provenance._commit.cache_clear()
    yield
    provenance._commit.cache_clear()


def checkout(folder: Path) -> Path:
    """A checkout with one commit and a module where this one would be."""
    module = folder / "src/fedse/runs/provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("first")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "one"]):
        git(folder, *words)
    return module


def git(folder: Path, *words: str) -> str:
    """Apart from the user's own settings, and from the repository whose hook may have started the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    apart = {**own, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    line = ["git", "-C", str(folder), *words]
    return subprocess.run(line, check=True, capture_output=True, text=True, env=apart).stdout.strip()


@pytest.mark.usefixtures("fresh_commit")
def test_a_checkout_has_a_commit_and_says_that_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, other = checkout(tmp_path / "ours"), checkout(tmp_path / "other")
    other.write_text("second")
    git(tmp_path / "other", "-c", "user.name=a", "-c", "user.email=b", "commit", "-qam", "two")
    head = git(tmp_path / "ours", "rev-parse", "HEAD")[:9]
    monkeypatch.setattr(provenance, "__file__", str(module))
    # As in a hook of another repository.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    assert describe()["commit"] == head
    provenance._commit.cache_clear()
    (tmp_path / "ours/notes.txt").touch()
    assert describe()["commit"] == head
    provenance._commit.cache_clear()
    module.with_name("new.py").touch()
    assert describe()["commit"] == f"{head}+"


@pytest.mark.usefixtures("fresh_commit")
@pytest.mark.parametrize("missing", ["git", "checkout", "place"])
def test_without_git_or_a_checkout_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    module = checkout(tmp_path / "with")
    if missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif missing == "checkout":
        module = tmp_path / "without/src/fedse/runs/provenance.py"
    else:
        # Installed into a folder of another project.
        module = tmp_path / "with/lib/fedse/runs/provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert "commit" not in describe()


def test_a_run_that_went_on_elsewhere_names_both_machines_and_an_idle_start_none() -> None:
    done = RoundFinished(round=1, seconds=1.0, refused={}, contributed=[])
    evaluated = Evaluated(round=1, split="test", macro=0.5, micro=0.5)
    first, second, third = (MadeWith(details={"cores": cores}) for cores in (1, 2, 3))
    told = [first, done, second, third, done, first, done, second, evaluated]
    assert makers(told) == [{"cores": 1}, {"cores": 3}, {"cores": 2}]
    assert makers([done, first, done]) == [{}, {"cores": 1}], "begun by an older fedse"
    assert in_words({}) == "what was not noted" and in_words({"cores": 1}) == "cores: 1"


def test_every_run_has_it_also_when_it_goes_on(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    for rounds in (1, 2):
        fedse.run(table_experiment(rounds=rounds), tmp_path)
    view = RunView.existing(tmp_path / "table")
    assert view.makers() == [describe()]
    assert sum(isinstance(logged.event, MadeWith) for logged in view.events()) == 2
