"""`fedse compare` and `fedse export --client` on real runs of a table."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import fedse
from fedse.cli.compare import print_details
from fedse.experiments.options import Experiment
from fedse_command import command
from short_maze import SHORT_MAZE

BASE: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "table", "rows": 256},
    "policy": "table",
    "learner": {"name": "table", "rate": 0.5},
    "clients": {
        "east": {"worlds": [{**SHORT_MAZE, "turn_limit": 8}]},
        "west": {"worlds": [{**SHORT_MAZE, "turn_limit": 10}]},
    },
    "start": {"tasks": 10},
    "exploration": {"tasks": 4},
    "evaluation": {"tasks": 25, "tasks_per_round": 2, "test_tasks": 25},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for method, seeds in (("fed_se", (0, 1)), ("centralized", (0, 1)), ("local", (0,)), ("pretrained", (0,))):
        for seed in seeds:
            name = f"{method}-s{seed}"
            fedse.run(Experiment.model_validate({**BASE, "name": name, "seed": seed, "method": method}), folder)
    return folder


def _cost_lines(printed: str) -> list[str]:
    table = printed.split("What the rounds took")[1].split("└")[0]
    return [line for line in table.splitlines() if line.startswith("│")]


@pytest.mark.slow
def test_compare_prints_tables_and_draws(runs: Path) -> None:
    names = ["fed_se-s0", "fed_se-s1", "centralized-s0", "centralized-s1", "local-s0", "pretrained-s0"]
    done = command("compare", *names, folder=runs)
    assert done.returncode == 0, done.stderr
    for expected in (
        "east: maze",
        "macro",
        "micro",
        "not distinguishable",
        "one seed",
        "trajectories",
    ):
        assert expected in done.stdout, (expected, done.stdout)
    assert not list(runs.glob("*.png")), "only --picture draws"
    assert "Picture: drawn.png" in command("compare", *names, "--picture", "drawn.png", folder=runs).stdout
    assert (runs / "drawn.png").read_bytes().startswith(b"\x89PNG")

    printed = json.loads(command("compare", *names, "--json", folder=runs).stdout)
    verdicts = {pair["theirs"]: pair["verdict"] for pair in printed["pairs"]}
    assert verdicts["pretrained"] == "fed_se has the better run", "one seed says nothing about methods"
    methods = {entry["label"]: entry for entry in printed["methods"]}
    stored = [json.loads((runs / f"fed_se-s{seed}/evaluations/test-0002.json").read_text()) for seed in (0, 1)]
    assert methods["fed_se"]["macro"] == pytest.approx(sum(item["macro"] for item in stored) / 2)
    assert methods["centralized"]["worlds"].keys() == methods["fed_se"]["worlds"].keys()
    single = json.loads((runs / "local-s0/evaluations/test-0002.json").read_text())
    assert methods["local"]["micro_interval"] == pytest.approx(single["micro_interval"])
    # Two clients, both directions, two rounds, 4 bytes for each of 256 x 4 scores.
    assert methods["fed_se"]["costs"]["fed_se-s0"]["2"]["bytes"] == 2 * 2 * 2 * 4 * 256 * 4
    assert methods["local"]["costs"]["local-s0"]["2"]["bytes"] == 0
    learned = {line.split("│")[1].strip(): line.split("│")[4].strip() for line in _cost_lines(done.stdout)}
    assert learned == {"fed_se": "-", "centralized": "-", "local": "-", "pretrained": "0"}, "a table counts no tokens"
    report = json.loads((runs / "fed_se-s1/rounds/0002/report.json").read_text())["diagnostics"]
    agreement = methods["fed_se"]["agreements"]["fed_se-s1"]["2"]
    assert agreement == {"cosine": report["cosine"]["east|west"], "product_gap": report["product_gap"]}


@pytest.mark.slow
def test_a_run_with_more_rounds_is_another_method(runs: Path) -> None:
    longer = {**BASE, "name": "longer", "method": "fed_se", "rounds": 3}
    fedse.run(Experiment.model_validate(longer), runs)
    printed = json.loads(command("compare", "fed_se-s0", "longer", "--json", folder=runs).stdout)
    assert [entry["label"] for entry in printed["methods"]] == ["fed_se, rounds=2", "fed_se, rounds=3"]


@pytest.mark.torture
def test_runs_that_are_rounded_differently_are_one_method_unless_that_is_asked(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for name, seed, slots in (("few-s0", 0, 2), ("more-s1", 1, 3), ("more-s0", 0, 3)):
        untrained = {
            **BASE,
            **{"name": name, "seed": seed, "method": "pretrained", "start": "none"},
            **{"model": "tiny", "policy": {"slots": slots, "reply_tokens": 2}, "learner": "imitation"},
            "evaluation": {"tasks": 2, "tasks_per_round": 1, "test_tasks": 2},
        }
        fedse.run(Experiment.model_validate(untrained), tmp_path)
    printed = json.loads(command("compare", "few-s0", "more-s1", "--json", folder=tmp_path).stdout)
    assert [entry["seeds"] for entry in printed["methods"]] == [[0, 1]]
    assert "policy.slots (2 or 3)" in printed["notes"][0]
    printed = json.loads(command("compare", "few-s0", "more-s0", "--json", folder=tmp_path).stdout)
    assert [entry["label"] for entry in printed["methods"]] == ["pretrained, slots=2", "pretrained, slots=3"]


SERVED = """
from typing import ClassVar
from fedse.worlds.maze import Maze

class ServedMaze(Maze):
    class Options(Maze.Options):
        operational: ClassVar[frozenset[str]] = frozenset({"url"})
        url: str = "here"
"""


@pytest.mark.slow
def test_a_world_whose_server_has_moved_is_the_same_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)
    for seed, changes in ((0, {"url": "here"}), (1, {"url": "there"}), (2, {"turn_limit": 9})):
        world = {"name": "served:ServedMaze", "mode": "original", "turn_limit": 8, **changes}
        content = {**BASE, "name": f"s{seed}", "seed": seed, "rounds": 1, "clients": {"east": {"worlds": [world]}}}
        fedse.run(Experiment.model_validate(content), tmp_path)
    done = command("compare", "s0", "s1", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [entry["seeds"] for entry in json.loads(done.stdout)["methods"]] == [[0, 1]]
    assert command("compare", "s0", "s2", folder=tmp_path).returncode == 2


@pytest.mark.slow
def test_a_long_label_is_printed_whole(runs: Path) -> None:
    names = ["mean", "size_weighted", "success_weighted"]
    for name in names:
        changed = {**BASE, "name": name, "rounds": 1, "method": "fed_se", "aggregator": name}
        fedse.run(Experiment.model_validate(changed), runs)
    printed = command("compare", *names, "--all-pairs", folder=runs).stdout
    assert "aggregator=success_weighted" in printed and "…" not in printed


@pytest.mark.slow
def test_tables_as_markdown_hold_what_json_holds(runs: Path) -> None:
    names = ["fed_se-s0", "fed_se-s1", "centralized-s0", "centralized-s1", "local-s0"]
    page = command("compare", *names, "--markdown", folder=runs).stdout
    printed = json.loads(command("compare", *names, "--json", folder=runs).stdout)
    methods = printed["methods"]
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for method in methods:
        row = next(row for row in rows if row.startswith(f"| {method['label']} | {len(method['seeds'])} |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert [cell.split("<br>")[0] for cell in cells[2:]] == [
            f"{100 * share:.1f}"
            for share in (*(world["success"] for world in method["worlds"].values()), method["macro"], method["micro"])
        ]
    columns = [len(row.split(" | ")) for row in rows]
    assert columns[0] == columns[1] == len(methods[0]["worlds"]) + 4
    for method in methods:
        spent = [run[str(method["rounds"])]["bytes"] for run in method["costs"].values()]
        moved = "trajectories" if None in spent else f"{sum(spent) / len(spent) / 1e6:.2f}"
        assert any(
            row.startswith(f"| {method['label']} | {method['rounds']} |") and row.endswith(f" {moved} |")
            for row in rows
        ), method["label"]
    assert [len(pair["seeds"]) for pair in printed["pairs"]] == [2, 1]
    for pair in printed["pairs"]:
        begin = f"| {pair['ours']} | {pair['theirs']} | {len(pair['seeds'])} | {100 * pair['macro']:+.1f}<br>"
        (row,) = [row for row in rows if row.startswith(begin)]
        assert row.endswith(f"{pair['verdict']} |")
        over_seeds = pair["seeds_interval"]
        assert (over_seeds is None) == (len(pair["seeds"]) == 1)
        shown = [f"t {100 * over_seeds[0]:+.1f} to {100 * over_seeds[1]:+.1f}"] if over_seeds else []
        assert row.split(" | ")[3].split("<br>")[2:] == shown


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--markdown", "--json", None])
def test_without_matplotlib_it_says_that_nothing_was_drawn(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str | None
) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    picture = tmp_path / "here.png"
    line = ["compare", "fed_se-s0", "local-s0", *([form] if form else []), "--picture", str(picture)]
    started = [sys.executable, "-m", "fedse", *line]  # A command of `command` has imported matplotlib already.
    done = subprocess.run(started, capture_output=True, text=True, cwd=runs, timeout=120)
    assert done.returncode == 0 and "fed_se" in done.stdout
    assert done.stderr.count("No picture: matplotlib is not installed") == 1
    assert not picture.exists()


def test_what_cannot_be_compared_is_one_sentence(runs: Path) -> None:
    for arguments, sentence in [
        (("compare", "nothing"), "is not a run"),
        (("compare", "fed_se-s0", "--split", "tset"), "did you mean 'test'?"),
        (("compare", "fed_se-s0", "fed_se-s0"), "same experiment with the same seed"),
        (("compare", "fed_se-s0", "--json", "--markdown"), "give one of the two"),
        (("compare", "fed_se-s0", "local-s0", "--against", "x"), "--against x: these runs are fed_se; local"),
    ]:
        done = command(*arguments, folder=runs)
        assert done.returncode == 2 and sentence in done.stderr, (done.stdout, done.stderr)


def test_a_clients_own_adapter_is_exported_by_name(runs: Path) -> None:
    refused = command("export", "local-s0", "adapter", folder=runs)
    assert refused.returncode == 2 and "each client of local-s0 has an adapter of its own" in refused.stderr
    assert command("export", "local-s0", "adapter", "--client", "west", folder=runs).returncode == 0
    own = (runs / "local-s0/clients/west/adapters/0002/adapter_model.safetensors").read_bytes()
    assert (runs / "adapter/adapter_model.safetensors").read_bytes() == own
    shown = command("show", "local-s0", folder=runs).stdout
    assert "method local (learning: true, exploring: false, sharing: none, pooled: false" in shown


def test_names_of_methods_are_not_broken_inside_a_word_on_a_usual_terminal() -> None:
    intervals = {"macro_interval": (0.123, 0.456), "micro_interval": (-0.123, 0.456), "seeds_interval": None}
    measured = SimpleNamespace(macro=0.1, micro=0.1, **intervals)
    labels = ["fed_se, aggregator=mean", "fed_se, aggregator=fedavgm, learning_rate=0.7, nesterov=True"]
    pair = SimpleNamespace(ours=labels[0], theirs=labels[1], seeds=[0], found=measured, p=0.5, verdict="better")
    cost = SimpleNamespace(hint_tokens=0, bytes=1, learned_tokens=1, explored_tokens=1, seconds=1)
    runs = [SimpleNamespace(costs={1: cost}, round=1)]
    groups = [SimpleNamespace(label=label, runs=runs, rounds="1", successes={}) for label in labels]
    printed = io.StringIO()
    found: Any = SimpleNamespace(groups=groups, pairs=[pair], notes=[])
    print_details(Console(file=printed, width=100), found)
    paired = printed.getvalue().split("Paired")[1].split("World by world")[0]
    for word in ("aggregator=fedavgm", "learning_rate=0.7", "nesterov=True", "+12.3 to +45.6", "-12.3 to +45.6"):
        assert word in paired
