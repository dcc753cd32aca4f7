"""A client that has nothing to learn from sits the round out; the run goes on, and everybody can see why."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fedse
from fedse.experiments.options import Experiment
from fedse.federation.client_status import ClientStatus
from fedse.federation.invalid_actions import MOSTLY_INVALID, mostly_invalid
from fedse.types import ClientUpdate, Trajectory, WorldScore

SINGING = {"model": {"name": "table", "actions": ["sing"], "rows": 16}, "exploration": {"tasks": 1}}


class KeepsNothingOfWest:
    """A filter under which one client never has anything."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [item for item in trajectories if item.client != "west"]


class LateWest(KeepsNothingOfWest):
    """The same up to the third round."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories) if trajectories[0].round >= 3 else super().keep(trajectories)


@pytest.fixture
def evolving(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    def make(**changes: Any) -> Experiment:
        return table_experiment(
            **{
                "start": "none",
                "rounds": 3,
                "exploration": {"tasks": 3},
                "evaluation": {"tasks": 1, "test_tasks": 1},
                **changes,
            }
        )

    return make


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in lines if event["event"] == name]


def test_a_client_without_a_success_sits_out_every_round_and_the_others_go_on(
    evolving: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(evolving(filter=f"{__name__}:KeepsNothingOfWest"), tmp_path)
    found = reports(result.folder)
    assert [report["clients"]["west"]["state"] for report in found] == [ClientStatus.NOTHING_TO_LEARN_FROM] * 3
    assert [report["clients"]["east"]["state"] for report in found] == [ClientStatus.SENT] * 3
    assert [report["diagnostics"]["contributed"] for report in found] == [["east"]] * 3
    assert len({report["adapter"] for report in found}) == 3
    told = [(event["client"], event["round"], event["state"]) for event in events(result.folder, "client_finished")]
    assert [item[1:] for item in told if item[0] == "west"] == [(n, "nothing to learn from yet") for n in (1, 2, 3)]


def test_a_client_joins_as_soon_as_it_has_something(evolving: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(evolving(filter=f"{__name__}:LateWest"), tmp_path)
    assert [report["clients"]["west"]["sent"] for report in reports(result.folder)] == [False, False, True]
    assert reports(result.folder)[2]["diagnostics"]["contributed"] == ["east", "west"]


def test_rounds_in_which_nobody_has_anything_keep_the_adapter_and_go_on(
    evolving: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(evolving(**SINGING), tmp_path)
    found = reports(result.folder)
    assert [report["round"] for report in found] == [1, 2, 3]
    assert {entry["state"] for report in found for entry in report["clients"].values()} == {"nothing to learn from yet"}
    assert len({report["adapter"] for report in found}) == 1
    assert [event["contributed"] for event in events(result.folder, "round_finished")] == [[], [], []]


def test_a_refused_client_is_not_called_one_that_sat_out(evolving: Callable[..., Experiment], tmp_path: Path) -> None:
    result = fedse.run(evolving(start="demonstrations", checks={"max_value": 1e-6}, rounds=1), tmp_path)
    assert {entry["state"] for entry in reports(result.folder)[0]["clients"].values()} == {"refused"}


def test_a_client_whose_learner_abstains_has_something_and_trained_nothing(
    evolving: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(evolving(start="demonstrations", learner="none", rounds=1), tmp_path)
    assert {entry["state"] for entry in reports(result.folder)[0]["clients"].values()} == {"the learner abstained"}


def test_almost_only_invalid_actions_are_recorded_every_round(
    evolving: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(evolving(**SINGING), tmp_path)
    found = events(result.folder, "warning")
    assert {(item["kind"], item["world"]) for item in found} == {("mostly_invalid", "maze")}
    assert [(item["client"], item["round"]) for item in found] == [
        (client, number) for number in (1, 2, 3) for client in ("east", "west")
    ]
    assert (found[0]["exploring"], found[0]["evaluating"]) == (1.0, 1.0)
    assert "does not speak the reply format yet" in found[0]["message"]


def test_a_run_of_valid_actions_warns_of_nothing(evolving: Callable[..., Experiment], tmp_path: Path) -> None:
    assert events(fedse.run(evolving(rounds=1), tmp_path).folder, "warning") == []


def update(invalid: int, *evaluated: tuple[str, int]) -> ClientUpdate:
    """Counts of 100 explored steps, and of 100 evaluated steps in each world."""
    scores = tuple(WorldScore(world, "validation", 10, 0, 100, 0, bad, {}, 0.0, None) for world, bad in evaluated)
    return ClientUpdate("site", 4, None, (), {"steps": 100, "invalid": invalid}, {}, scores)


def test_nine_tenths_is_the_bound_of_exploration_and_evaluation() -> None:
    assert MOSTLY_INVALID == 0.9
    assert mostly_invalid(update(89, ("maze", 89))) == []
    (exploring,) = mostly_invalid(update(90, ("maze", 0)))
    (evaluating,) = mostly_invalid(update(0, ("maze", 90)))
    assert (exploring.exploring, exploring.evaluating) == (0.9, None)
    assert (evaluating.exploring, evaluating.evaluating) == (None, 0.9)
    assert "site, maze: almost all actions in round 4 were invalid (90 % while exploring)" in exploring.message(4)


def test_each_world_of_a_client_is_judged_alone() -> None:
    found = mostly_invalid(update(95, ("maze", 10), ("wordle", 100)))
    assert [(item.world, item.exploring, item.evaluating) for item in found] == [
        ("wordle", None, 1.0),
        ("", 0.95, None),
    ]
    assert "site: almost all actions in round 1 were invalid (95 % while exploring)" in found[1].message(1)


def test_a_client_that_did_not_act_is_not_warned_of() -> None:
    assert mostly_invalid(ClientUpdate("site", 1, None, (), {}, {})) == []
