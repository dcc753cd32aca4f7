"""Numbers that plug-ins tell each other, and what further probes measure: alike in every engine, and all in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import fedse
from fedse.clients.site import Site
from fedse.curricula.uniform import Uniform
from fedse.errors import BadInput
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.federation.shared import shared_of, with_shared, without_shared
from fedse.protocols import Past
from fedse.types import (
    Adapter,
    ClientUpdate,
    Episode,
    Outcome,
    Purpose,
    RoundTask,
    ServerState,
    Task,
    Tensors,
    Trajectory,
    WorldScore,
)

Make = Callable[..., Experiment]


class Common(Uniform):
    """All sites together count how often each task was solved, and explore first what nobody solves."""

    shares = "solved"
    gives = frozenset({"mean"})

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._known: dict[int, Tensors] = {}
        self._past: Past | None = None

    def take(self, round: int, merged: Tensors) -> None:
        self._known[round] = merged

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        self._past = past
        solved = self._known[round].get("mean", np.zeros(40, dtype=np.float32))
        return sorted(super().chosen(label, round, past), key=lambda task: float(solved[int(task.id)]))

    def give(self, round: int) -> Tensors:
        counted = np.zeros(40, dtype=np.float32)
        for label in self.site.places:
            for item in self._past.attempts(label) if self._past else ():
                counted[int(item.task)] += item.outcome is Outcome.SUCCESS
        return {"mean": counted}


class Unhurried:
    """How the adapter does on three training tasks."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def plan(self, task: RoundTask) -> list[Episode]:
        return [
            self.site.episode(label, item, Purpose.EVALUATE, task.round, attempt=1)
            for label, place in self.site.places.items()
            for item in place.world.tasks("train")[:3]
        ]

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        successes = sum(item.outcome is Outcome.SUCCESS for item in played)
        steps = sum(len(item.steps) for item in played)
        return [WorldScore("maze", "train", len(played), successes, steps, 0, 0, {}, 0.0, None)]


def tenfold(make: Make, **changes: Any) -> Experiment:
    return make(curriculum=f"{__name__}:Common", probes=[f"{__name__}:Unhurried"], rounds=3, **changes)


@pytest.mark.slow
def test_what_is_shared_resumes_and_every_bit_of_it_is_in_the_ledger(table_experiment: Make, tmp_path: Path) -> None:
    whole = fedse.run(tenfold(table_experiment), tmp_path / "whole")
    for rounds in (1, 3):
        halting = fedse.run(tenfold(table_experiment).model_copy(update={"rounds": rounds}), tmp_path / "halting")
    assert halting.adapter.digest() == whole.adapter.digest()
    lines = [json.loads(line) for line in (whole.folder / "clients/east/ledger.jsonl").read_text().splitlines()]
    shared = [line for line in lines if line["field"] == "shared/solved/mean"]
    assert [(line["task"], line["bytes"]) for line in shared] == [(f"train-{number:04d}", 160) for number in (1, 2, 3)]
    assert {line["task"] for line in lines if line["field"] == "probes/Unhurried"} == {line["task"] for line in lines}


@pytest.mark.slow
def test_a_probe_is_reported_by_its_name_and_leaves_the_evaluation_alone(
    table_experiment: Make, tmp_path: Path
) -> None:
    probed = fedse.run(table_experiment(probes=[f"{__name__}:Unhurried"] * 2), tmp_path / "probed")
    plain = fedse.run(table_experiment(), tmp_path / "plain")
    assert probed.adapter.digest() == plain.adapter.digest()
    assert probed.test is not None and plain.test is not None
    assert probed.test["worlds"] == plain.test["worlds"]
    reports = [json.loads((run.folder / "rounds/0001/report.json").read_text()) for run in (probed, plain)]
    assert reports[0]["evaluation"] == reports[1]["evaluation"]
    (one, two) = (reports[0]["clients"]["east"]["probes"][name] for name in ("Unhurried", "Unhurried_2"))
    assert one == two and one[0]["episodes"] == 3 and one[0]["split"] == "train"
    assert "probes" not in reports[1]["clients"]["east"]


@pytest.mark.torture
@pytest.mark.usefixtures("ray_is_not_nice")
def test_flower_carries_both_bit_for_bit(table_experiment: Make, tmp_path: Path) -> None:
    here = fedse.run(tenfold(table_experiment), tmp_path / "here")
    there = fedse.run(tenfold(table_experiment, engine="flower"), tmp_path / "there")
    assert here.adapter.digest() == there.adapter.digest()
    for number in (1, 2, 3):
        found = [json.loads((run.folder / f"rounds/{number:04d}/report.json").read_text()) for run in (here, there)]
        assert found[0]["clients"] == found[1]["clients"]


NAMES = frozenset({"bandit"})


def update(client: str, **given: Any) -> ClientUpdate:
    shared = {"bandit": {name: np.asarray(value, dtype=np.float32) for name, value in given.items()}}
    return ClientUpdate(client, 1, None, (), {}, {}, shared=shared)


def test_the_mean_of_what_was_given_is_handed_out_and_odd_gifts_are_left_out() -> None:
    state = ServerState(1, Adapter({}), {"first_moment": np.ones(2, dtype=np.float32)})
    after = with_shared(state, {}, [update("b", arms=[3.0, 5.0]), update("a", arms=[1.0, 2.0])], NAMES)
    np.testing.assert_array_equal(shared_of(after)["bandit"]["arms"], [2.0, 3.5])
    assert without_shared(after).memory.keys() == {"first_moment"}
    odd = [update("a", arms=[1.0, 2.0, 3.0]), update("b", arms=[np.nan, 1.0]), update("c", arms=[8.0, 8.0])]
    found = shared_of(with_shared(after, after.memory, odd, NAMES))
    np.testing.assert_array_equal(found["bandit"]["arms"], [8.0, 8.0])
    assert shared_of(with_shared(state, {}, [update("a", arms=[1.0])], frozenset())) == {}, "nobody asked for that"
    number = with_shared(state, {}, [update("a", arms=2.5)], NAMES).memory["shared/bandit/arms"]
    assert number.shape == () and save({"x": number}), "a single number can be stored with the round"
    nobody = with_shared(without_shared(after), after.memory, [], NAMES)
    np.testing.assert_array_equal(shared_of(nobody)["bandit"]["arms"], [2.0, 3.5])


def test_sites_that_share_nothing_tell_each_other_nothing(table_experiment: Make, tmp_path: Path) -> None:
    result = fedse.run(tenfold(table_experiment, method="local"), tmp_path)
    assert "shared/" not in (result.folder / "clients/east/ledger.jsonl").read_text()
    assert not (result.folder / "rounds/0003/server").exists()


class Leaking(Unhurried):
    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> list[WorldScore]:
        return [WorldScore(played[0].steps[0].observation, "train", 1, 1, 1, 1, 0, {}, 0.0, None)]


def test_a_probe_cannot_name_its_worlds_with_what_it_saw(table_experiment: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="probe 'Leaking': a score is of one of the worlds maze, by its label"):
        fedse.run(table_experiment(probes=[f"{__name__}:Leaking"]), tmp_path)
    assert not list(tmp_path.glob("table/rounds/0001"))


@pytest.mark.parametrize("wrong", [{"successes": 9}, {"episodes": "x"}, {"split": "a red door"}, {"errors": {"E": -1}}])
def test_a_score_that_is_none_is_refused_wherever_it_comes_from(wrong: dict[str, Any]) -> None:
    right = {"world": "maze", "split": "train", "episodes": 3, "successes": 1, "steps": 9, "tokens": 5, "invalid": 0}
    score = WorldScore(**{**right, "errors": {}, "floor": 0.0, "ceiling": None, **wrong})
    with pytest.raises((ValueError, TypeError)):
        ClientUpdate("a", 1, None, (), {}, {}, probes={"p": (score,)})
    with pytest.raises((ValueError, TypeError)):
        ClientUpdate("a", 1, None, (), {}, {}, scores=(score,))


def test_episodes_of_probes_are_logged_apart_from_those_that_are_compared(
    table_experiment: Make, tmp_path: Path
) -> None:
    folder = fedse.run(table_experiment(probes=[f"{__name__}:Unhurried"]), tmp_path).folder
    journal = Journal(folder / "clients/east/episodes")
    assert len(list(journal.read("test-0002"))) == 5
    assert len(list(journal.read("probes-test-0002"))) == len(list(journal.read("probes-train-0001"))) == 3
    stored = json.loads((folder / "evaluations/test-0002.json").read_text())
    assert stored["probes"]["east"]["Unhurried"][0]["episodes"] == 3


def test_names_of_what_is_shared_are_words() -> None:
    with pytest.raises(ValueError, match="names like 'loss' only, not 'the door was red'"):
        ClientUpdate("a", 1, None, (), {}, {}, shared={"bandit": {"the door was red": np.zeros(1, dtype=np.float32)}})
