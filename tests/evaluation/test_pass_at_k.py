"""pass@k: a held-out task counts as solved when one of its attempts did it, drawn and not greedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedse import run
from fedse.errors import BadInput
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.runs.reading import RunView
from fedse.types import Outcome


@pytest.mark.parametrize("split", ["validation", "test"])
def test_tasks_that_one_of_their_attempts_solved(
    split: str, table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    # Hot enough to fail at times.
    probe = {"name": "pass_at_k", "attempts": 4, "tasks": 3, "split": split, "temperature": 20.0}
    folder = run(table_experiment(rounds=1, probes=[probe]), tmp_path).folder
    view = RunView.existing(folder)
    told: Any = {name: view.evaluation(name, 1) for name in ("validation", "test")}
    (row,) = told.pop(split)["probes"]["west"]["pass_at_k"]
    assert not any(other.get("probes", {}).get("west", {}).get("pass_at_k") for other in told.values()), (
        "one split only"
    )
    played = list(Journal(folder / "clients/west/episodes").read(f"probes-{split}-0001"))
    greedy = list(Journal(folder / "clients/west/episodes").read(f"{split}-0001"))
    by_task = {item.task: [one.outcome for one in played if one.task == item.task] for item in played}
    assert list(by_task) == [item.task for item in greedy][:3], "the first of those that are played greedily"
    assert all(len(outcomes) == 4 for outcomes in by_task.values())
    assert 0 < sum(item.outcome is Outcome.SUCCESS for item in played) < len(played), "else this would prove nothing"
    assert row["episodes"] == 3
    assert row["successes"] == sum(Outcome.SUCCESS in outcomes for outcomes in by_task.values())
    assert row["steps"] * 3 == pytest.approx(sum(len(item.steps) for item in played))


def test_the_test_split_needs_a_test(table_experiment: Callable[..., Experiment]) -> None:
    probe = [{"name": "pass_at_k", "split": "test"}]
    with pytest.raises(BadInput, match=r"`probes: pass_at_k` measures the test split"):
        table_experiment(probes=probe, evaluation={"test_tasks": 0})
    assert table_experiment(probes=probe, evaluation={"test_tasks": 1})
