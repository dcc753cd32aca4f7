"""What the documents say is true: their examples run, their generated parts are current, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fedse.cli.reference import render
from fedse.experience.buffer import read_file
from fedse_command import command

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def fedse(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return command(*arguments, folder=folder, environment={**os.environ, "PYTHONPATH": str(folder)})


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contributing")
    for name, content in BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()):
        (folder / name).write_text(content)
    return folder


def test_the_contributing_guides_world_passes_the_checker(contributed: Path) -> None:
    done = fedse("worlds", "check", "number_world:NumberWorld", folder=contributed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contributing_guides_experiment_runs(contributed: Path) -> None:
    done = fedse("run", "mine.yaml", folder=contributed)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((contributed / "runs/mine/rounds/0003/report.json").read_text())
    (probed,) = report["clients"]["here"]["probes"]["OnTrainingTasks"]
    assert probed["episodes"] == 10 and probed["split"] == "train"
    told = (contributed / "runs/mine/telling.txt").read_text().splitlines()
    assert [line.split(" in ")[0] for line in told if "round" in line] == [f"round {n}: 2 updates" for n in (1, 2, 3)]
    kept = read_file(contributed / "runs/mine/clients/here/buffer.sqlite")
    found = [item for item in kept if item.round > 0]
    assert found and all(item.rewards == {"short": item.score / len(item.steps)} for item in found)
    assert len(list((contributed / "runs/mine/clients/here/private").glob("*.safetensors"))) == 3, (
        "the mix keeps its own"
    )


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


def test_recipes_are_valid() -> None:
    from fedse import load_experiment

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
