"""`benchmarks/crossing.py` on runs of a table: each rule against the control, number by number."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedse
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView

Ran = Callable[..., Path]


@pytest.fixture
def ran(table_experiment: Callable[..., Experiment], tmp_path: Path) -> Ran:
    def run(rule: str, number: int, seed: int, **changes: Any) -> Path:
        evaluation = {"tasks": 2, "tasks_per_round": 2, "test_tasks": 20}
        method = {"method": "local_se"} if rule == "alone" else {}
        name = f"{rule}_{number}-s{seed}"
        settings = {"rounds": 1, "start": {"tasks": number}, "evaluation": evaluation, **method, **changes}
        return fedse.run(table_experiment(**settings, name=name, seed=seed), tmp_path / "runs").folder

    return run


@pytest.fixture
def runs(ran: Ran) -> list[Path]:
    return [ran(rule, number, seed) for number in (2, 8) for rule in ("mean", "alone") for seed in (1, 2)]


@pytest.mark.slow
def test_differences_are_those_of_the_tests_and_what_was_found_is_kept_and_drawn(
    benchmarks: Callable[[str], ModuleType],
    runs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept, picture = tmp_path / "crossing.json", tmp_path / "crossing.png"
    monkeypatch.setattr(sys, "argv", ["crossing.py", *map(str, runs), "--output", str(kept), "--picture", str(picture)])
    benchmarks("crossing").main()
    rows = json.loads(kept.read_text())["rows"]
    assert [(row["demonstrations"], row["rule"]) for row in rows] == [
        (2, "alone"),
        (2, "mean"),
        (8, "alone"),
        (8, "mean"),
    ]
    for alone, mean in (rows[:2], rows[2:]):
        for seed in ("1", "2"):
            for row in (alone, mean):
                view = RunView.existing(tmp_path / "runs" / f"{row['rule']}_{row['demonstrations']}-s{seed}")
                assert row["macro_by_seed"][seed] == pytest.approx((view.evaluation("test", 1) or {})["macro"])
        assert mean["difference"] == pytest.approx(mean["macro"] - alone["macro"])
        assert sum(mean["by_seed"]) / 2 == pytest.approx(mean["difference"])
        assert mean["interval"][0] <= mean["difference"] <= mean["interval"][1]
        assert "difference" not in alone
    assert picture.read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out
    assert [line.split()[:2] for line in told.splitlines()[:4]] == [
        ["2", "alone"],
        ["2", "mean"],
        ["8", "alone"],
        ["8", "mean"],
    ]


@pytest.mark.slow
def test_runs_that_do_not_go_together_are_not_compared_as_if_they_did(
    benchmarks: Callable[[str], ModuleType], runs: list[Path], ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ran("odd", 2, 1, exploration={"tasks": 3})
    for given, said in (
        (runs[1:4], r"2 demonstrations: mean has the seeds \[2\], alone has \[1, 2\]"),
        ([*runs[2:4], other, ran("odd", 2, 2)], "2 demonstrations: runs of odd differ in"),
    ):
        monkeypatch.setattr(sys, "argv", ["crossing.py", *map(str, given)])
        with pytest.raises(SystemExit, match=said):
            benchmarks("crossing").main()


def test_a_run_with_another_name_and_a_number_without_a_control_are_named(
    benchmarks: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = benchmarks("crossing")
    for run, said in (("runs/mean-s1", "mean-s1: wants a name"), ("runs/mean_20-s1", "no run named alone_20")):
        monkeypatch.setattr(sys, "argv", ["crossing.py", run])
        with pytest.raises(SystemExit, match=said):
            crossing.main()
