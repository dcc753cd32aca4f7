"""Names that may leave a site are known before the run. Whatever is made up on the way becomes `other`."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from fedse.engines.flower.wire import renamed
from fedse.errors import BadInput, FedseError
from fedse.experiments.known_before import expected_of
from fedse.experiments.options import Experiment
from fedse.learners.table import TableLearner
from fedse.privacy.names import COUNTS, KINDS, METRICS, Names, known_kind, may_be_told, told_worlds
from fedse.types import ClientUpdate, Learned, Lesson, WorldScore
from fedse.worlds.maze import Maze
from sources import modules, tree

SECRET = "patient_4711_has_a_rare_disease"
SCORE = WorldScore("maze", "validation", 5, 2, 30, 200, 1, {"KeyError": 1, SECRET: 2, "Made_up": 3}, 0.1, None)


def update(**changes: Any) -> ClientUpdate:
    content: dict[str, Any] = {"counts": {"explored": 1}, "metrics": {"loss": 0.5}, "scores": (SCORE,)}
    return ClientUpdate("east", 1, None, (), **{**content, **changes})


def test_every_error_of_fedse_has_a_name_that_may_be_told() -> None:
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {FedseError.__name__}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    assert len(found) > 20 and sorted(found - KINDS) == []


@pytest.mark.parametrize(("name", "told"), [("KeyError", "KeyError"), ("TooLate", "TooLate"), (SECRET, "other")])
def test_the_class_of_an_error_is_told_if_it_is_known(name: str, told: str) -> None:
    assert known_kind(name) == told
    assert renamed(type(name, (Exception,), {})("text")) == told


def test_worlds_of_fedse_and_of_the_common_file_are_told_and_the_others_numbered() -> None:
    assert told_worlds(["maze", "maze#2", "Ward", "Clinic", "other"], ["Clinic"]) == {
        **{"maze": "maze", "maze#2": "maze#2", "Ward": "other", "Clinic": "Clinic", "other": "other#2"},
    }
    for name in ("maze#x", "maze#4711", "maze ", "#", "", SECRET, "maze#\u0664"):
        assert not may_be_told(name, ["Clinic"]), name


def test_what_is_on_no_list_becomes_another() -> None:
    names = Names({"maze": "maze", "Ward": "other"}, METRICS | {"final"}, frozenset({"Unhurried"}))
    told = names.only_known(
        update(
            counts={"explored": 3, SECRET: 1},
            metrics={"final": 1.0, SECRET: 2.0},
            scores=(SCORE, replace(SCORE, world="Ward")),
            probes={"Unhurried": (SCORE,), SECRET: (SCORE,)},
        )
    )
    assert (told.counts, told.metrics) == ({"explored": 3, "other": 1}, {"final": 1.0, "other": 2.0})
    assert [score.world for score in told.scores] == ["maze", "other"]
    assert told.scores[0].errors == {"KeyError": 1, "other": 5}
    assert list(told.probes) == ["Unhurried", "other"] and SECRET not in repr(told)


def test_a_tensor_without_a_known_name_is_not_shared() -> None:
    names = Names({"maze": "maze"}, shares={"bandit": frozenset({"counts"})})
    one = np.ones(1, np.float32)
    assert names.only_known(update(shared={"bandit": {"counts": one}})).shared["bandit"]["counts"] is one
    for shared in ({"bandit": {SECRET: one}}, {SECRET: {"counts": one}}):
        with pytest.raises(BadInput, match="list them in its attribute `gives`"):
            names.only_known(update(shared=shared))


class Telling(TableLearner):
    def learn(self, lesson: Lesson) -> Learned | None:  # type: ignore[override]
        learned = super().learn(lesson)
        return learned and (learned[0], {**learned[1], SECRET: 1.0})


class Indiscreet(Maze):
    """Breaks with an error whose class is what it has just said."""

    def begin(self, task: str) -> str:
        if task == "3":
            raise type(SECRET, (Exception,), {})
        return super().begin(task)


def test_an_error_made_of_an_observation_reaches_neither_report_nor_events(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    experiment = table_experiment(
        clients={"clinic": {"worlds": [{"name": f"{__name__}:Indiscreet", "mode": "original"}]}},
        learner=f"{__name__}:Telling",
        evaluation={"tasks": 40, "test_tasks": 40},
        limits={"max_error_share": 1.0},
        rounds=1,
    )
    result = fedse.run(experiment, tmp_path)
    holding = {
        path.relative_to(result.folder).parts[0]
        for path in result.folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    }
    assert holding == {"clients"}, "the site itself is told in full"
    report = json.loads((result.folder / "rounds/0001/report.json").read_text())
    assert sorted(report["clients"]["clinic"]["metrics"]) == ["loss", "other"]
    errors = [row["errors"] for row in [*result.validation["worlds"], *(result.test or {})["worlds"]]]
    assert {"other": 1} in errors
    ledger = (result.folder / "clients/clinic/ledger.jsonl").read_text()
    assert SECRET not in ledger


def test_what_may_be_expected_follows_from_the_experiment(table_experiment: Callable[..., Experiment]) -> None:
    expected = expected_of(table_experiment(buffer={"max_trajectories": 7}))
    assert (expected.explored, expected.started, expected.learned_from) == (20, 3, 7)
    assert expected.tested == {"validation": 5, "test": 5} and expected.worlds == {"east": ("maze",), "west": ("maze",)}
    assert expected_of(table_experiment(start="none")).started == 0
    assert expected_of(table_experiment(method="fedit")).explored == 0
    assert {"explored", "learned_from", "successes"} <= COUNTS
