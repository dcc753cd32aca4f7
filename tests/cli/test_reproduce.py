"""`fedse reproduce`: the paper's grids, its numbers as it has them, and ours beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedse
from fedse.cli import paper_numbers as paper
from fedse.cli.reproduce import GRIDS, What, _mebibytes, grid
from fedse_command import command

BASE = """
name: base
rounds: 1
model: {name: table, rows: 64}
policy: table
learner: {name: table, rate: 0.5}
clients:
  maze: {worlds: [{name: maze, mode: original, turn_limit: 6}]}
  again: {worlds: [{name: maze, mode: original, turn_limit: 8}]}
start: {tasks: 15}
exploration: {tasks: 25}
evaluation: {tasks: 1, test_tasks: 8}
"""


@pytest.mark.parametrize("model", paper.TABLE1)
def test_the_papers_average_is_the_micro_average_over_its_test_tasks(model: str) -> None:
    for method, (*worlds, average) in paper.TABLE1[model].items():
        successes = [
            round(share * paper.TEST_TASKS[name] / 100) for name, share in zip(paper.WORLDS, worlds, strict=True)
        ]
        assert 100 * sum(successes) / sum(paper.TEST_TASKS.values()) == pytest.approx(average, abs=0.06), method


def test_the_ranks_megabytes_are_float32_adapters_of_llama2() -> None:
    for row, (_, size) in paper.RANKS.items():
        assert 2_498_560 * int(row.removeprefix("rank_")) * 4 / 2**20 == pytest.approx(size, abs=0.06)


@pytest.mark.parametrize("what", What)
def test_grids_are_valid_on_the_papers_setting(what: What, tmp_path: Path) -> None:
    made = grid(what, "tiny", None, [], 2, tmp_path)
    rows = GRIDS[what].get("methods") or list(GRIDS[what]["variants"])
    assert [cell.name for cell in made] == [f"{row}-s{seed}" for seed in (0, 1) for row in rows]
    assert {len(cell.experiment.clients) for cell in made} == {5}
    assert {cell.experiment.rounds for cell in made} == {20}
    assert {cell.folder.parent.name for cell in made} == {f"{what}-tiny"}
    assert all(paper.micro(what, row, "Qwen2.5-7B") is not None for row in rows[:4] if row != "rank_32")


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    for arguments, sentence in [
        (("reproduce", "table1"), "--model is missing"),
        (("reproduce", "table1", "--model", "tiny", "--beside", "Qwen2.5-8B"), "did you mean 'Qwen2.5-7B'?"),
    ]:
        done = command(*arguments, folder=tmp_path)
        assert done.returncode == 2 and sentence in done.stderr
    listed = command("reproduce", "rank", "--model", "tiny", "--dry-run", folder=tmp_path)
    assert "rank_16-s0" in listed.stdout and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ours_stands_beside_the_papers_also_when_something_is_missing(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    line = ("reproduce", "ablations", "--base", "base.yaml", "--processes", 2)
    whole = command(*line, folder=tmp_path)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    for expected in ("66.1", "40.5", "no_history", "+25.6", "Does the paper's difference show", "differs", "not known"):
        assert expected in whole.stdout, whole.stdout
    assert "PARTIAL" not in whole.stdout
    partial = command(*line, "--seeds", 2, "--max-minutes", 0, folder=tmp_path)
    assert "PARTIAL: 4 of 8 runs" in " ".join(partial.stdout.split()), partial.stdout


def test_the_size_of_an_adapter_stands_beside_the_papers(tmp_path: Path) -> None:
    small = ["model.width=16", "model.layers=1", "model.threads=1", "rounds=0", "evaluation={tasks: 1, test_tasks: 0}"]
    brief = [
        "clients={maze: {worlds: [{name: maze, rules: brief, turn_limit: 4}]}}",
        "policy={slots: 2, reply_tokens: 2}",
    ]
    cell = next(cell for cell in grid(What.RANK, "tiny", None, small + brief, 1, tmp_path) if "rank_4" in cell.name)
    fedse.run(cell.experiment, cell.folder.parent)
    # Four attention and three feed-forward matrices; A and B of each have rank times (width in + width out) values.
    values = 4 * (4 * (16 + 16) + 3 * (16 + 48))
    assert _mebibytes(cell) == f"{values * 4 / 2**20:.2f}\n38.1"
