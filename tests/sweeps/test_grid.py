"""Sweep files: which runs they mean, and what is refused before anything begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedse
from fedse.errors import BadInput
from fedse.sweeps.grid import Cell, cells, read_sweep

BASE = """
name: base
rounds: 1
model: {name: table, rows: 64}
policy: table
learner: table
clients: {east: {worlds: [{name: maze, mode: original, turn_limit: 6}]}}
start: {tasks: 4}
exploration: {tasks: 2}
evaluation: {tasks: 2, test_tasks: 2}
"""


def made(folder: Path, text: str, *settings: str) -> list[Cell]:
    (folder / "base.yaml").write_text(BASE)
    (folder / "sweep.yaml").write_text(text)
    return cells(*read_sweep(folder / "sweep.yaml", settings), folder / "runs")


def test_a_grid_is_every_combination_with_readable_names(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        """
name: grid
experiment: base.yaml
methods: [fed_se, fedit]
variants: {plain: {}, longer: {rounds: 2, exploration.tasks: 3}}
settings: {model.rows: [32, 64]}
seeds: [0, 1]
""",
        "evaluation.tasks=1",
    )
    assert len(found) == 16 == len({cell.name for cell in found})
    cell = next(cell for cell in found if cell.name == "fedit-longer-rows_32-s1")
    assert cell.folder == tmp_path / "runs/grid/fedit-longer-rows_32-s1"
    experiment = cell.experiment
    assert (experiment.method, experiment.rounds, experiment.seed) == ("fedit", 2, 1)
    assert (experiment.aggregator.name, experiment.exploration.tasks) == ("size_weighted", 3)
    assert (experiment.model.options["rows"], experiment.evaluation.tasks) == (32, 1)


def test_an_experiment_may_stand_in_the_sweep_itself(tmp_path: Path) -> None:
    inside = "".join(f"  {line}\n" for line in BASE.strip().splitlines())
    (cell,) = made(tmp_path, f"name: one\nexperiment:\n{inside}")
    assert cell.name == "s0" and cell.experiment.method == "fed_se"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: x\nexperiment: none.yaml", "there is no file"),
        (BASE, "is an experiment, which `fedse run "),
        ("name: a b\nexperiment: base.yaml", "name: 'a b' cannot be a name: use at most 100 letters"),
        ("name: x\nexperiment: base.yaml\nmethod: [local]", "unknown key; did you mean 'methods'?"),
        ("name: x\nexperiment: base.yaml\nmethods: [locl]", "methods.0: input should be"),
        (
            "name: x\nexperiment: base.yaml\nvariants: {a: {learnr: 1}}",
            "cell a-s0: --set learnr=1: learnr: unknown key",
        ),
        (
            "name: x\nexperiment: base.yaml\nmethods: [local]\nsettings: {sharing: [all]}",
            "method 'local' means `sharing",
        ),
        ("name: x\nexperiment: base.yaml\nseeds: [1, 1]", "two cells of the sweep would be called s1"),
        ("name: x\nexperiment: base.yaml\nsettings: {rounds: []}", "settings.rounds: no value is given"),
        ("name: x\nexperiment: base.yaml\nsettings: {seed: [1, 2]}", "settings.seed: the seeds of a sweep are those"),
        ("name: x\nexperiment: base.yaml\nvariants: {a: {seed: 1}}", "variants.a.seed: the seeds of a sweep are"),
        (
            "name: x\nexperiment: base.yaml\nvariants: {a: {name: b}}",
            "variants.a.name: the sweep names its runs itself",
        ),
        (
            "name: x\nexperiment: base.yaml\nmethods: [fedit]\nvariants: {a: {method: local}}",
            "variants.a.method: the methods of this sweep are those under `methods`",
        ),
        (
            "name: x\nexperiment: base.yaml\nvariants: {a: {learner.rate: 0.5}}\nsettings: {learner: [table]}",
            "variants.a.learner.rate: each run of this sweep has a value of its own from `settings.learner`",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        made(tmp_path, text)
    assert sentence in str(raised.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("seed=7", r"--set seed=7: the seeds of a sweep are those under `seeds`"),
        ("name=y", r"--set name=y: the sweep names its runs itself"),
        ("method=local", r"--set method=local: the methods of this sweep are those under `methods`"),
        ("rounds=3", r"--set rounds=3: each run of this sweep has a value of its own from `settings\.rounds`"),
    ],
)
def test_what_the_sweep_gives_to_each_run_is_not_set_beside_it(tmp_path: Path, setting: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        made(
            tmp_path,
            "name: x\nexperiment: base.yaml\nmethods: [fedit]\nsettings: {rounds: [1, 2]}\nseeds: [0]",
            setting,
        )


def test_what_the_sweep_leaves_open_can_be_set(tmp_path: Path) -> None:
    (cell,) = made(tmp_path, "name: x\nexperiment: base.yaml", "seed=7", "method=local")
    assert (cell.name, cell.experiment.seed, cell.experiment.method) == ("s7", 7, "local")


def test_no_sweep_is_laid_into_a_run(tmp_path: Path) -> None:
    (cell,) = made(tmp_path, "name: grid\nexperiment: base.yaml")
    run = fedse.run(cell.experiment, tmp_path / "runs").folder
    before = sorted(run.iterdir())
    with pytest.raises(BadInput, match="runs/s0 is a run, and no folder for runs: give the sweep another `name`"):
        made(tmp_path, "name: s0\nexperiment: base.yaml")
    assert sorted(run.iterdir()) == before


def test_a_cell_is_complete_when_its_last_adapter_was_measured(tmp_path: Path) -> None:
    (cell,) = made(tmp_path, "name: grid\nexperiment: base.yaml")
    assert not cell.is_complete() and cell.rounds_done() is None
    result = fedse.run(cell.experiment, tmp_path / "runs/grid")
    assert cell.is_complete() and cell.rounds_done() == 1
    measured = result.folder / "evaluations/test-0001.json"
    measured.write_text(json.dumps({**json.loads(measured.read_text()), "adapter": "another"}))
    assert not cell.is_complete()
    with pytest.raises(
        BadInput, match=r"cell s0: .* holds a run of another experiment \(different: exploration\.tasks\)"
    ):
        made(tmp_path, "name: grid\nexperiment: base.yaml\nsettings: {}", "exploration.tasks=1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "experiment:",
            "line 2: experiment: the name of an experiment file is expected here, or the keys of an experiment",
        ),
        (
            "experiment: base.yaml\nsettings: 5",
            "settings: a group of keys is expected here, as in `settings: {learner.",
        ),
        (
            "experiment: base.yaml\nvariants: 5",
            "variants: a group of keys is expected here, as in `variants: {no_filter:",
        ),
    ],
)
def test_what_belongs_at_a_key_is_shown(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        made(tmp_path, f"name: grid\n{text}\n")
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_part_of_the_grid_is_chosen_by_names(tmp_path: Path) -> None:
    grid = "name: grid\nexperiment: base.yaml\nmethods: [fed_se, fedit]\nseeds: [0, 1]"
    every = made(tmp_path, grid)

    def chosen(*patterns: str) -> list[str]:
        return [cell.name for cell in cells(*read_sweep(tmp_path / "sweep.yaml", ()), tmp_path / "runs", patterns)]

    assert chosen("fedit-*") == ["fedit-s0", "fedit-s1"]
    assert chosen("fed_se-s1", "*-s0") == ["fed_se-s0", "fedit-s0", "fed_se-s1"]
    assert chosen() == [cell.name for cell in every]
    for patterns, said in [
        (("fedit-*", "fedse-s1"), r"--only fedse-s1: did you mean 'fed_se-s1'\?"),
        (("fedit",), r"--only fedit: did you mean 'fedit\*'\? No run of the sweep"),
        (("fedit-s0,fedit-s1",), r"--only fedit-s0,fedit-s1: Give the option once for each name\. No run"),
    ]:
        with pytest.raises(BadInput, match=said):
            chosen(*patterns)


def test_what_is_left_out_does_not_stand_in_the_way(tmp_path: Path) -> None:
    grid = "name: grid\nexperiment: base.yaml\nmethods: [fed_se, fedit]\nseeds: [0]"
    other = made(tmp_path, grid, "exploration.tasks=3")[0]
    fedse.run(other.experiment, other.folder.parent)
    with pytest.raises(BadInput, match="cell fed_se-s0"):
        made(tmp_path, grid)
    assert [cell.name for cell in cells(*read_sweep(tmp_path / "sweep.yaml", ()), tmp_path / "runs", ["fedit-*"])] == [
        "fedit-s0"
    ]
