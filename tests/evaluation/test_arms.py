"""`benchmarks/arms.py`: hints count as demonstrations, and successes with them are kept apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.types import Outcome, Purpose, Step, Trajectory


@pytest.fixture
def program(benchmarks: Any) -> Any:
    return benchmarks("arms")


def _episode(outcome: Outcome, *hints: str) -> Trajectory:
    steps = tuple(Step("a wall", "Action: left", "", "left", True, hint=hint) for hint in hints)
    return Trajectory("maze", "maze", "train-1", Purpose.EXPLORE, 2, 0, "", steps, "", outcome, 1.0, (), ())


def test_successes_with_a_hint_are_not_an_agents_own(program: Any) -> None:
    told = "A good next action is: move left"
    found = program.of_round(
        [
            _episode(Outcome.SUCCESS, "", ""),
            _episode(Outcome.SUCCESS, "Mind the walls.", ""),
            _episode(Outcome.FAILURE, told, told, told),
            _episode(Outcome.ERROR, told),
            _episode(Outcome.FAILURE, ""),
        ]
    )
    assert found == {"explored": 5, "hinted": 3, "hints": 5, "next_actions": 4, "alone": 1, "helped": 1}


def test_seeds_of_an_arm_are_added_up(program: Any) -> None:
    runs = [
        {"arm": "sec", "sites": {"maze": {"tries": [[1, "maze", "short", 3, 2], [2, "maze", "long", 4, 0]]}}},
        {"arm": "sec", "sites": {"maze": {"tries": [[1, "maze", "short", 1, 0], [1, "maze", "long", 4, 1]]}}},
    ]
    rows = program.tries(runs)
    assert [(row.round, row.category, row.tries, row.successes) for row in rows] == [
        (1, "short", 4, 2),
        (2, "long", 4, 0),
        (1, "long", 4, 1),
    ]
    assert program.moved(rows, rounds=1) == [
        "| sec | maze | short | 50 % (50) | 0 % |",
        "| sec | maze | long | 50 % (25) | 100 % (0) |",
    ]


@pytest.mark.slow
def test_the_control_is_shown_as_many_episodes_as_had_hints(
    program: Any, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    hints = {"name": "hints", "raise_below": 1.0, "lower_above": 1.0}
    helped = fedse.run(table_experiment(name="hints-s3", curriculum=hints, seed=3), tmp_path).folder
    note = program.noted(helped)
    report = RunView.existing(helped).report(2)
    assert report is not None
    for client, site in note["sites"].items():
        counts = report["clients"][client]["counts"]
        first, second = site["rounds"]
        assert first["hinted"] == 0 < second["hinted"] == counts["hinted"]
        assert second["alone"] + second["helped"] == counts["successes"]
        assert second["hint_tokens"] == counts["hint_tokens"] > 0

    asked = dict(setting.split("=") for setting in program.as_many_shown(note))
    plain = table_experiment(name="more-s3", seed=3)
    clients = {
        name: options.model_copy(update={"start": replaced})
        for name, options in plain.clients.items()
        for replaced in [
            plain.start.model_copy(update={"options": {"tasks": int(asked[f"clients.{name}.start.tasks"])}})
        ]
    }
    more = fedse.run(plain.model_copy(update={"clients": clients}), tmp_path).folder
    of_more = program.noted(more)["sites"]
    for client, site in note["sites"].items():
        assert of_more[client]["shown"] == site["shown"] + site["rounds"][1]["hinted"]
        assert of_more[client]["shown_tokens"] > site["shown_tokens"] > 0

    for run in (helped, more):
        (run / program.NOTE).write_text(program.json.dumps(program.noted(run)))
    found = program.gathered([helped, more])
    assert [method["label"] for method in found["comparison"]["methods"]] == ["hints", "more"]
    assert "| more | east |" in program.tables(found)
