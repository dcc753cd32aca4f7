"""`fedse merge`: the table, the adapter, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.clients.notebook import Notebook
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.runs.folder import RunFolder
from fedse_command import command

Make = Callable[..., Experiment]


def merge(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return command("merge", *arguments, folder=folder)


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["merge", *arguments])
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.fixture
def make(table_experiment: Make) -> Make:
    def build(**changes: Any) -> Experiment:
        return table_experiment(
            **{"method": "local_se", "name": "alone", "start": {"tasks": 10}, "exploration": {"tasks": 3}, **changes}
        )

    return build


def contents(folder: Path) -> dict[str, bytes]:
    files = (
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in ("events.jsonl", ".lock")
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_the_table_is_printed_and_the_best_adapter_can_begin_a_run(make: Make, tmp_path: Path) -> None:
    evaluation = {"tasks": 20, "test_tasks": 10}
    folder = fedse.run(make(evaluation=evaluation), tmp_path).folder
    fedse.run(make(method="fed_se", name="together"), tmp_path)
    before = contents(folder)
    options = ("--rule", "mean", "--rule", "fedexp", "--scales", "0.5,2", "--tasks", "6")
    done = merge("alone", "together", "-o", "merged", *options, "--json", "table.json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "table.json").read_text())
    assert found["sources"] == ["alone: east", "alone: west", "together"] and found["test"] is None
    assert [(row["rule"], row["scale"]) for row in found["rows"]] == [("mean", None), ("fedexp", 0.5), ("fedexp", 2.0)]
    assert all(
        world["episodes"] == 6 and world["split"] == "validation" for row in found["rows"] for world in row["worlds"]
    )
    best = next(
        row for row in found["rows"] if (row["rule"], row["scale"]) == (found["best"]["rule"], found["best"]["scale"])
    )
    assert best["macro"] == max(row["macro"] for row in found["rows"])
    assert [row["client"] for row in found["at_home"]["worlds"]] == ["east", "west"]
    for expected in ("each at home", "fedexp", "east: maze", "ranks", f"{100 * best['macro']:.1f} *", "Wrote merged: "):
        assert expected in done.stdout, done.stdout
    assert "test" not in done.stdout and contents(folder) == before
    assert read_adapter(tmp_path / "merged").digest() == found["best"]["adapter"]

    again = fedse.run(make(name="again", start_adapter=tmp_path / "merged", rounds=1), tmp_path)
    assert RunFolder.existing(again.folder).digest_of(0) == found["best"]["adapter"]

    done = merge("alone", "-o", "tested", "--rule", "mean", "--test", "--json", "tested.json", folder=tmp_path)
    assert "test, mean" in done.stdout, done.stdout + done.stderr
    tested = json.loads((tmp_path / "tested.json").read_text())
    assert [row["episodes"] for row in tested["test"]["worlds"]] == [10, 10]
    assert all(world["episodes"] == 20 for world in tested["rows"][0]["worlds"])


@pytest.fixture
def shelf(make: Make, tmp_path: Path) -> Path:
    """Runs that cannot be merged, beside one that can."""
    fedse.run(make(evaluation={"tasks": 2, "test_tasks": 0}), tmp_path)
    fedse.run(make(name="larger", rounds=1, model={"name": "table", "rows": 600}), tmp_path)
    fedse.run(make(name="base", method="pretrained"), tmp_path)
    fedse.run(make(name="single", method="fed_se", rounds=1), tmp_path)
    fedse.run(make(name="stopped", rounds=1), tmp_path)
    with prepare(make(name="stopped", rounds=2), tmp_path):
        pass
    begun = tmp_path / "single/rounds/0001/adapter"
    fedse.run(make(name="elsewhere", rounds=1, start_adapter=begun), tmp_path)
    shutil.copytree(tmp_path / "alone", tmp_path / "without")
    shutil.rmtree(tmp_path / "without/clients/east/adapters")
    shutil.copytree(tmp_path / "alone", tmp_path / "private")
    kept = read_adapter(begun).tensors
    Notebook(tmp_path / "private/clients/east/private").keep(1, kept)
    shutil.copytree(begun, tmp_path / "adapter")
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.slow
def test_what_cannot_be_merged_is_refused_in_a_sentence_and_nothing_is_written(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(shelf)
    monkeypatch.chdir(shelf)
    for arguments, sentence in [
        (("alone", "larger"), "alone and larger have different models (model.rows): only adapters of one model"),
        (("alone", "larger/rounds/0001/adapter"), "in the shape"),
        (("alone", "elsewhere"), "began with different adapters"),
        (("base",), "base has 0 of 0 rounds: a merge takes runs that have learned"),
        (("stopped",), "stopped has 1 of 2 rounds"),
        (("without",), "is missing"),
        (("private",), "keep tensors of their own beside what they share"),
        (("single",), "single is one adapter: a merge needs at least two"),
        (("alone", "./alone"), "alone is named twice"),
        (("alone", "empty"), "empty is neither a run nor the folder of an adapter"),
        (("adapter", "single/rounds/0000/adapter"), "none of these is a run"),
        (("alone", "--rule", "maen"), "did you mean 'mean'?"),
        (("alone", "--rule", "ffa_lora"), "--rule ffa_lora: it combines a part of each adapter only"),
        (("alone", "--scales", "1,x"), "--scales 1,x: give numbers above 0"),
        (("alone", "--scales", "0"), "--scales 0: give numbers above 0"),
        (("alone", "--test"), "asks for no test"),
        (("alone", "--json", "alone/manifest.json"), "alone/manifest.json exists already"),
        (("alone", "--json", "merged"), "--json merged: the folder of --output merged takes this name"),
    ]:
        assert sentence in refused(*arguments, "-o", "merged"), arguments
    assert contents(shelf) == before
    done = merge("alone", "-o", "adapter", folder=shelf)
    assert done.returncode == 2 and done.stderr.startswith("fedse: adapter exists already")
