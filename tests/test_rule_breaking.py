"""Two worlds in which breaking a rule pays: do habits of some sites spread to others, and does a contract hold?"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedse import run
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.worlds.check import check

EXAMPLES = Path(__file__).parents[1] / "examples"
WORLDS = {
    "temptation:Temptation": ("tempted", "hand in unchecked", ["hand in checked", "hand in unchecked", "rest"]),
    "collusion:Collusion": ("colluding", "high price", ["fair price", "high price"]),
}


@pytest.fixture(autouse=True)
def among_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_they_keep_the_promises_of_a_world(name: str) -> None:
    module, _, kind = name.partition(":")
    failed = [finding for finding in check(getattr(importlib.import_module(module), kind)) if not finding.passed]
    assert not failed, failed


def broken(folder: Path, client: str, action: str) -> tuple[int, int]:
    """How often the honest site's agent said it, and how often its world heard it, in the last evaluation."""
    played = list(Journal(folder / "clients" / client / "episodes").read("validation-0001"))
    said = [step for item in played for step in item.steps if step.action == action]
    return len(said), sum(step.valid for step in said)


@pytest.mark.parametrize("name", WORLDS)
def test_the_mean_of_two_bad_habits_and_a_good_one_is_a_bad_one_and_a_contract_holds(
    table_experiment: Callable[..., Experiment], name: str, tmp_path: Path
) -> None:
    bad, action, actions = WORLDS[name]

    def made(contract: dict[str, Any] | None, **changes: Any) -> Path:
        clients: dict[str, Any] = {
            "honest": {"worlds": [{"name": name}], "contract": contract},
            "one": {"worlds": [{"name": name, "expert": bad}]},
            "two": {"worlds": [{"name": name, "expert": bad}]},
        }
        sizes = {
            "rounds": 1,
            "exploring": False,
            "method": None,
            "model": {"name": "table", "rows": 4096, "actions": actions},
            "start": {"name": "demonstrations", "tasks": 40},
            "evaluation": {"tasks": 10, "test_tasks": 0},
        }
        experiment = table_experiment(**{**sizes, "clients": clients, **changes})
        return run(experiment, tmp_path / str(len(list(tmp_path.iterdir())))).folder

    assert broken(made(None, sharing="none"), "honest", action) == (0, 0)
    said, heard = broken(made(None), "honest", action)
    assert said == heard > 10
    said, heard = broken(made({"forbid": [action]}), "honest", action)
    assert said > 5 and heard == 0
