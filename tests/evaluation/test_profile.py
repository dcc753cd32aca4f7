"""Watching a run divides all of its time and changes nothing about it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
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


class Calls:
    """A clock that goes on by one with each call of a function, so that a busy machine tells the same time."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> float:
        return float(self.number)

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.number += event in ("call", "c_call")


def watched(experiment: Experiment, runs: Path) -> tuple[RunResult, Profile, float]:
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls.count)
    try:
        profile = Profile(Stopwatch(clock=calls))
        began = calls()
        with running(profile.stopwatch):
            result = fedse.run(experiment, runs, trackers=[profile])
            profile.cut(END)
        return result, profile, calls() - began
    finally:
        sys.setprofile(before)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, tiny_text: str) -> Any:
    folder = tmp_path_factory.mktemp("profile")
    (folder / "tiny.yaml").write_text(tiny_text)
    experiment = fedse.load_experiment(folder / "tiny.yaml")
    plain = fedse.run(experiment, folder / "plain")
    return plain, *watched(experiment, folder / "watched")


@pytest.mark.slow
def test_spans_add_up_to_the_time_that_passed(both: Any) -> None:
    _, _, profile, passed = both
    # The few calls before the first and after the last reading are in no stretch.
    assert sum(stretch.seconds for stretch in profile.stretches) == pytest.approx(passed, abs=20)


@pytest.mark.slow
def test_a_run_is_cut_into_rounds_and_evaluations(both: Any) -> None:
    names = [stretch.name for stretch in both[2].stretches]
    assert names == [BEGINNING, "round 1", "round 2", "evaluation on validation", "evaluation on test", END]


@pytest.mark.slow
def test_every_span_occurs_in_a_round_and_little_is_left(both: Any) -> None:
    for stretch in both[2].stretches[1:3]:
        assert stretch.spans.keys() == MEANINGS.keys() - ELSEWHERE
        assert all(seconds > 0 for seconds in stretch.spans.values())
        assert stretch.spans["rest"] < 0.15 * stretch.seconds
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
