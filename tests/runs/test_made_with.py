"""A run says with what it was made, and where it went on."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.experiment import Experiment
from fedse.runs import made_with
from fedse.runs.made_with import describe, in_words, makers


def test_versions_device_and_precision_are_named(tiny: Any) -> None:
    torch = pytest.importorskip("torch")
    found = describe(tiny)
    assert (found["fedse"], found["python"]) == (fedse.__version__, platform.python_version())
    assert (found["torch"], found["threads"]) == (torch.__version__, torch.get_num_threads())
    assert (found["device"], found["precision"]) == ("cpu", "float32")
    assert f"torch {found['torch']}" in in_words(found) and "cpu, float32" in in_words(found)
    assert "device" not in describe(None)


@pytest.fixture
def fresh_commit() -> Iterator[None]:
    made_with._commit.cache_clear()
    yield
    made_with._commit.cache_clear()


def checkout(folder: Path) -> Path:
    """A checkout with one commit and a module where this one would be."""
    module = folder / "src/fedse/runs/made_with.py"
    module.parent.mkdir(parents=True)
    module.write_text("first")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return module


@pytest.mark.usefixtures("fresh_commit")
def test_a_checkout_has_a_commit_and_says_that_it_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = checkout(tmp_path)
    line = ["git", "-C", str(tmp_path), "rev-parse", "HEAD"]
    head = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setattr(made_with, "__file__", str(module))
    assert describe()["commit"] == head[:9]
    made_with._commit.cache_clear()
    module.write_text("second")
    assert describe()["commit"] == f"{head[:9]}+"


@pytest.mark.usefixtures("fresh_commit")
@pytest.mark.parametrize("missing", ["git", "checkout"])
def test_without_git_or_a_checkout_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    module = checkout(tmp_path / "with")
    if missing == "git":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        module = tmp_path / "without/src/fedse/runs/made_with.py"
    monkeypatch.setattr(made_with, "__file__", str(module))
    assert "commit" not in describe()


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in events))
    return path


def test_a_run_that_went_on_elsewhere_names_both_machines_and_an_idle_start_none(tmp_path: Path) -> None:
    done, evaluated = {"event": "round_finished", "round": 1}, {"event": "evaluated", "split": "test"}
    first, second, third = ({"event": "made_with", "cores": cores} for cores in (1, 2, 3))
    events = write(tmp_path / "events.jsonl", done, first, done, second, third, done, first, done, second, evaluated)
    assert makers(events) == [{"cores": 1}, {"cores": 3}, {"cores": 2}]
    with events.open("a") as file:
        file.write('{"time": 2.0, "eve')
    assert len(makers(events)) == 3
    assert makers(tmp_path / "none.jsonl") == []


def test_every_run_has_it_also_when_it_goes_on(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    for rounds in (1, 2):
        fedse.run(table_experiment(rounds=rounds), tmp_path)
    events = tmp_path / "table/events.jsonl"
    assert makers(events) == [describe()]
    assert [json.loads(line)["event"] for line in events.read_text().splitlines()].count("made_with") == 2
