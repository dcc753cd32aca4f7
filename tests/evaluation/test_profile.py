"""Watching a run divides all of its time and changes nothing about it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.evaluation.profile import BEGINNING, END, Profile
from fedse.experiments.assembling import RunResult
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder
from fedse.stopwatch import MEANINGS, Stopwatch, running

ELSEWHERE = {"noise", "loss and backward", "recording", "scoring"}
"""Spans of a GPU, and of learning rules other than imitation."""


def watched(experiment: Experiment, runs: Path) -> tuple[RunResult, Profile, float]:
    began = time.perf_counter()
    profile = Profile(Stopwatch())
    with running(profile.stopwatch):
        result = fedse.run(experiment, runs, trackers=[profile])
        profile.cut(END)
    return result, profile, time.perf_counter() - began


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, tiny_text: str) -> Any:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "tiny.yaml").write_text(tiny_text)
    experiment = fedse.load_experiment(folder / "tiny.yaml")
    plain = fedse.run(experiment, folder / "plain")
    return plain, *watched(experiment, folder / "watched")


@pytest.mark.slow
def test_spans_add_up_to_the_time_that_passed(both: Any) -> None:
    _, result, profile, seconds = both
    assert sum(stretch.seconds for stretch in profile.stretches) == pytest.approx(seconds, rel=0.01)
    for number in (1, 2):
        report = RunFolder.existing(result.folder).report(number) or {}
        (stretch,) = [item for item in profile.stretches if item.name == f"round {number}"]
        # The report's time ends before the round is written to disk.
        assert 0 <= stretch.seconds - report["seconds"] < 0.5
        assert stretch.seconds == pytest.approx(sum(stretch.spans.values()))


@pytest.mark.slow
def test_a_run_is_cut_into_rounds_and_evaluations(both: Any) -> None:
    names = [stretch.name for stretch in both[2].stretches]
    assert names == [BEGINNING, "round 1", "round 2", "evaluation on validation", "evaluation on test", END]


@pytest.mark.slow
def test_every_span_occurs_in_a_round_and_little_is_left(both: Any) -> None:
    for stretch in both[2].stretches[1:3]:
        assert stretch.spans.keys() == MEANINGS.keys() - ELSEWHERE
        assert all(seconds > 0 for seconds in stretch.spans.values())
        assert stretch.spans["rest"] < 0.1 * stretch.seconds
    learning = {"loss", "backward", "optimiser", "learning", "aggregate"}
    for stretch in both[2].stretches[3:5]:
        assert {"world", "text", "prefill", "decode", "transfer", "adapter", "disk"} <= stretch.spans.keys()
        assert not learning & stretch.spans.keys()


@pytest.mark.slow
def test_episodes_and_tokens_are_counted(both: Any) -> None:
    first, test = both[2].stretches[1], both[2].stretches[4]
    assert first.counts["episodes to evaluate"] == 2 * 2 and first.counts["episodes to explore"] == 2 * 3
    assert test.counts["episodes"] == test.counts["episodes to evaluate"] == 2 * 2
    events = [json.loads(line) for line in (both[1].folder / "events.jsonl").read_text().splitlines()]
    played = [event["decoded"] for event in events if event["event"] == "episodes_played"]
    assert [stretch.counts["decoded"] for stretch in both[2].stretches[1:5]] == played


@pytest.mark.slow
def test_results_are_the_same_watched_and_unwatched(both: Any) -> None:
    plain, result, *_ = both
    assert plain.adapter.digest() == result.adapter.digest()
    assert plain.test == result.test and plain.validation == result.validation
    for number in (1, 2):
        reports = [dict(RunFolder.existing(run.folder).report(number) or {}) for run in (plain, result)]
        for report in reports:
            assert report.pop("seconds") > 0
        assert reports[0] == reports[1]
    for file in sorted((plain.folder / "clients").rglob("episodes/*")):
        assert file.read_bytes() == (result.folder / file.relative_to(plain.folder)).read_bytes()
