"""What the documents say is true: their examples run, their generated parts are current, their links lead somewhere."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedse import load_experiment, run
from fedse.cli.reference import render
from fedse.experience.buffer import read_file
from fedse.plugins.shipped import KNOWN
from fedse_command import command
from short_maze import SHORT_MAZE

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def fedse(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return command(*arguments, folder=folder, environment={**os.environ, "PYTHONPATH": str(folder)})


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files of the pages about plug-ins."""
    folder = tmp_path_factory.mktemp("contributing")
    for page in (ROOT / "docs/learn/first_world.md", *(ROOT / "docs/howto").glob("*.md")):
        for name, content in BLOCK.findall(page.read_text()):
            assert not (folder / name).exists(), f"two files are called {name}"
            (folder / name).write_text(content)
    return folder


def test_the_first_aggregator_keeps_its_promises(contributed: Path) -> None:
    done = fedse("aggregators", "check", "by_success:BySuccess", folder=contributed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_kind_of_plug_in_has_a_page_with_an_example_that_the_experiment_of_all_uses() -> None:
    pages = {page.stem for page in (ROOT / "docs/howto").glob("*.md")}
    assert KNOWN.keys() <= pages
    together = (ROOT / "docs/howto/plugins.md").read_text().partition("all_examples.yaml")[2]
    own = {name for page in (ROOT / "docs/howto").glob("*.md") for name, _ in BLOCK.findall(page.read_text())}
    assert [name for name in own if name.endswith(".py") and f"{name[:-3]}:" not in together] == []


def test_the_experiment_with_all_examples_runs_and_ends_above_the_floor(contributed: Path) -> None:
    done = fedse("run", "all_examples.yaml", folder=contributed)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((contributed / "runs/all_examples/rounds/0003/report.json").read_text())
    (probed,) = report["clients"]["here"]["probes"]["OnTrainingTasks"]
    assert probed["episodes"] == 10 and probed["split"] == "train"
    told = (contributed / "runs/all_examples/telling.txt").read_text().splitlines()
    assert [line.split(" in ")[0] for line in told if "round" in line] == [f"round {n}: 2 updates" for n in (1, 2, 3)]
    kept = read_file(contributed / "runs/all_examples/clients/here/buffer.sqlite")
    found = [item for item in kept if item.round > 0]
    assert found and all(item.rewards == {"short": item.score / len(item.steps)} for item in found)
    assert len(list((contributed / "runs/all_examples/clients/here/private").glob("*.safetensors"))) == 3, (
        "the mix keeps its own"
    )
    assert sum(item.round == 0 for item in kept) == 5, "the shorter half of ten demonstrations"
    closing = json.loads((contributed / "runs/all_examples/evaluations/validation-0003.json").read_text())
    assert all(row["success"] > row["floor"] + 0.3 for row in closing["worlds"])


def test_the_objective_and_the_tracker_that_contributing_shows_run_and_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()):
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    small = [
        "model.name=tiny",
        "start.name=demonstrations",
        "start.tasks=3",
        "exploration.tasks=1",
        "evaluation.tasks=1",
    ]
    short = ["policy.reply_tokens=4", f"clients.maze.worlds={json.dumps([{**SHORT_MAZE, 'turn_limit': 5}])}"]
    # In this process: most of what a command would take is to import a language model's libraries.
    folder = run(load_experiment(tmp_path / "focal.yaml", [*small, *short]), tmp_path / "runs").folder
    report = json.loads((folder / "rounds/0002/report.json").read_text())
    assert report["clients"]["maze"]["metrics"]["loss"] > 0
    rows = (folder / "durations.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["1", "2"]

    objective = importlib.import_module("focal").FocalLoss()
    scores = np.log([0.1, 0.5, 0.9])
    (found,) = objective.weigh([SimpleNamespace(now=scores)]).weights

    def loss(at: int, step: float) -> float:
        return objective.weigh([SimpleNamespace(now=scores + step * np.eye(3)[at])]).loss

    wanted = [(loss(at, -1e-6) - loss(at, 1e-6)) / 2e-6 for at in range(3)]
    assert found == pytest.approx(wanted, rel=1e-6) and found[0] > found[1] > found[2]


def test_the_reference_is_what_fedse_reference_prints() -> None:
    assert (ROOT / "docs/reference.md").read_text() == render(), "run `make reference`"


def test_every_option_has_a_meaning() -> None:
    rows = [line for line in render().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row for row in rows if row.rstrip(" |").endswith("`") or row.split("|")[-2].strip() == ""] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(
        r"\b(?:tests|benchmarks|scripts|recipes|examples|src/fedse)/[\w/.-]+\.(?:py|yaml)", page.read_text()
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def test_rates_are_written_with_per() -> None:
    amounts = "tokens|tasks|episodes|demonstrations|successes|explorations|epochs|turns|bytes|MB|KB|ms"
    rate = re.compile(
        rf"\b\d+ (?:[a-z]+ )?({amounts}) an? (site|round|episode|second|client|step|world|turn|value|run)\b"
    )
    told = {page.name: found for page in PAGES if (found := rate.findall(page.read_text()))}
    assert told == {}, "write `tokens per episode`"


def test_recipes_are_valid() -> None:
    recipes = sorted((ROOT / "recipes").glob("*.yaml"))
    assert recipes
    for recipe in recipes:
        load_experiment(recipe)


def test_sweeps_are_valid(tmp_path: Path) -> None:
    from fedse.sweeps.grid import cells, read_sweep

    recipes = sorted((ROOT / "recipes" / "sweeps").glob("*.yaml"))
    assert recipes
    for recipe in recipes:
        assert len(cells(*read_sweep(recipe), tmp_path)) > 5


def test_the_readmes_experiment_is_valid(tmp_path: Path) -> None:
    from fedse import load_experiment

    blocks = dict(BLOCK.findall((ROOT / "README.md").read_text()))
    (tmp_path / "experiment.yaml").write_text(blocks["experiment.yaml"])
    load_experiment(tmp_path / "experiment.yaml")
