"""The gate before every broadcast: an adapter that went wrong is taken back within one round, and only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedse import run
from fedse.aggregators.mean import Mean
from fedse.errors import BadInput
from fedse.events import Event, Warned
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.federation.promotion import Doubt, confirmed, doubted
from fedse.protocols import StoredUpdate
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, ServerState
from short_maze import SHORT_MAZE

COLLAPSE = 3


class Collapsing(Mean):
    """The mean, but for one round, in which it unlearns everything and learns the opposite."""

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> tuple[ServerState, Mapping[str, float]]:
        following, told = super().combine(state, updates)
        if following.round != COLLAPSE:
            return following, told
        reversed_ = {name: -np.abs(tensor) for name, tensor in following.adapter.tensors.items()}
        return ServerState(following.round, Adapter(reversed_, following.adapter.config), following.memory), told


class Told:
    def __init__(self) -> None:
        self.warned: list[Warned] = []

    def record(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.warned.append(event)


@pytest.fixture
def five_rounds(table_experiment: Callable[..., Experiment]) -> Callable[..., Experiment]:
    clients = {
        "east": {"worlds": [{**SHORT_MAZE, "turn_limit": 20}]},
        "west": {"worlds": [{**SHORT_MAZE, "turn_limit": 18}]},
    }
    sizes = {"exploration": {"tasks": 4}, "evaluation": {"tasks": 20, "tasks_per_round": 8, "test_tasks": 0}}
    return lambda **changes: table_experiment(**{"clients": clients, "rounds": 5, **sizes, **changes})


def digests(runs: Path) -> list[str]:
    folder = RunFolder(runs / "table")
    return [folder.digest_of(number) for number in range((folder.last_round() or 0) + 1)]


@pytest.mark.slow
def test_a_planted_collapse_is_taken_back_within_one_round(
    five_rounds: Callable[..., Experiment], tmp_path: Path
) -> None:
    told = Told()
    run(five_rounds(aggregator=Collapsing, promotion={"drop": 0.2}), tmp_path, trackers=[told])
    made = digests(tmp_path)
    report = RunFolder(tmp_path / "table").report(COLLAPSE + 1) or {}
    gate = report["diagnostics"]["promotion"]
    assert gate["doubted"] == COLLAPSE and gate["fell"] > 0.2 and gate["fell_on_all"] > 0.2
    assert made[COLLAPSE + 1] == made[gate["best"]] == report["adapter"]
    assert made[COLLAPSE] != made[COLLAPSE - 1] and gate["best"] < COLLAPSE
    assert [event.kind for event in told.warned if event.kind == "rolled_back"] == ["rolled_back"]
    following = RunFolder(tmp_path / "table").report(COLLAPSE + 2) or {}
    assert "promotion" not in following["diagnostics"] and following["evaluation"]["macro"] > 0.2
    # Stopped before the bad adapter is found out, and resumed, it is the same run.
    for rounds in (COLLAPSE, 5):
        run(five_rounds(aggregator=Collapsing, promotion={"drop": 0.2}, rounds=rounds), tmp_path / "resumed")
    assert digests(tmp_path / "resumed") == made


@pytest.mark.slow
def test_a_run_that_does_well_is_the_same_with_and_without_the_gate(
    five_rounds: Callable[..., Experiment], tmp_path: Path
) -> None:
    run(five_rounds(rounds=3), tmp_path / "without")
    run(five_rounds(rounds=3, promotion={"drop": 0.5}), tmp_path / "with")
    assert digests(tmp_path / "without") == digests(tmp_path / "with")


def test_a_site_that_joins_later_has_no_say_in_what_is_taken_back_before(
    five_rounds: Callable[..., Experiment], tmp_path: Path
) -> None:
    """It is not asked either: before its round it does nothing."""
    clients = {
        "east": {"worlds": [{**SHORT_MAZE, "turn_limit": 20}]},
        "later": {"worlds": [{**SHORT_MAZE, "turn_limit": 18}], "joins": 5},
    }
    changes = {"clients": clients, "aggregator": Collapsing, "promotion": {"drop": 0.2}}
    run(five_rounds(**changes), tmp_path)
    folder = RunFolder(tmp_path / "table")
    gate = (folder.report(COLLAPSE + 1) or {})["diagnostics"]["promotion"]
    both = [folder.evaluation("validation", number) or {} for number in (gate["best"], COLLAPSE)]
    assert [[row["client"] for row in told["worlds"]] for told in both] == [["east"], ["east"]]
    assert gate["fell_on_all"] == pytest.approx(both[0]["macro"] - both[1]["macro"])
    assert digests(tmp_path)[COLLAPSE + 1] == digests(tmp_path)[gate["best"]]
    with open_run(folder.path) as federation:
        server = federation.server
        assert server.evaluate_once(gate["best"], "validation", ["east"])["asked"] == ["east"], "it is there"
        whole = server.evaluate_once(gate["best"], "validation")
    assert [row["client"] for row in whole["worlds"]] == ["east", "later"], "what one was asked is no answer for two"


class Reports:
    """A run of which only reports are asked for."""

    def __init__(self, successes: Sequence[Mapping[str, float | None]]) -> None:
        self._successes = successes

    def report(self, number: int) -> dict[str, Any]:
        return {"evaluation": {"worlds": rows(self._successes[number - 1])}}


def rows(successes: Mapping[str, float | None]) -> list[dict[str, Any]]:
    return [{"client": name, "world": "maze", "success": success} for name, success in successes.items()]


def test_what_is_compared_is_what_was_measured_both_times() -> None:
    run_: Any = Reports([{"east": 0.1, "west": 0.1}, {"east": 0.9, "west": 0.5}, {"east": 0.8, "west": 0.6}])
    # Adapter 1 and adapter 2 are best; the earlier one is taken.
    assert doubted(run_, 4, rows({"east": 0.4, "west": 0.4}), 0.2) == Doubt(3, 1, pytest.approx(0.3))
    assert doubted(run_, 4, rows({"east": 0.7, "west": 0.6}), 0.2) is None
    # West was not there: east alone says how far it fell, and what was never measured says nothing.
    assert doubted(run_, 4, rows({"east": 0.6}), 0.2) == Doubt(3, 1, pytest.approx(0.3))
    assert doubted(run_, 4, rows({"east": None, "south": 0.0}), 0.2) is None
    assert doubted(run_, 1, rows({"east": 0.0}), 0.2) is None, "nothing came before"


def test_the_slow_truth_has_the_last_word() -> None:
    all_tasks = {1: rows({"east": 0.5}), 3: rows({"east": 0.45})}
    assert confirmed(Doubt(3, 1, 0.4), all_tasks.__getitem__, 0.2) is None
    assert confirmed(Doubt(3, 1, 0.4), all_tasks.__getitem__, 0.04) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evaluation": {"tasks_per_round": 0}}, "`evaluation.tasks_per_round` is 0"),
        ({"evaluation": {"mean_of_last": 2}}, "measures the mean of several"),
        ({"method": "local_se"}, "no shared adapter to take back"),
        ({"mix": "fedalt"}, "with `mix: fedalt` sites keep what they learned beside a shared adapter"),
        ({"mix": "personal"}, "with `mix: personal` sites keep"),
        ({"aggregator": "fedsa_lora"}, "with `aggregator: fedsa_lora` sites keep"),
        ({"learner": "distillation"}, "with `learner: distillation` sites keep"),
    ],
)
def test_a_gate_without_anything_to_go_by_is_refused(
    table_experiment: Callable[..., Experiment], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        table_experiment(promotion={}, **changes)
