"""Refused updates: nobody overlooks them, a learner that does not work stops a run, and a single site never does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import NothingTrained
from fedse.experiments.options import Experiment
from fedse.federation.checks import NOT_FINITE, UNCHANGED
from fedse.federation.exchange import Replies
from fedse.federation.refusals import MOST, fruitless, refusals, refusals_of
from fedse.learners.table import TableLearner
from fedse.page.overview import overview
from fedse.page.report import report
from fedse.page.shown import Shown
from fedse.runs.reading import RunView
from fedse.types import Adapter, ClientUpdate, Lesson
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
BAD = f"3 {NOT_FINITE}"
BOUND = "its change has norm 5, above the bound 4.9"
WEST = (
    f"None of the 2 updates of west could be used: the shared adapter has learned nothing from it (2048 {NOT_FINITE})."
)


class Diverges(TableLearner):
    """At one site."""

    def learn(self, lesson: Lesson) -> Any:
        learned = super().learn(lesson)
        if learned is None or lesson.trajectories[0].client != "west":
            return learned
        wild = {name: np.full_like(tensor, np.nan) for name, tensor in learned[0].tensors.items()}
        return Adapter(wild, lesson.start.config), learned[1]


def answered(**counts: Mapping[str, int]) -> Replies:
    return Replies({name: ClientUpdate(name, 1, None, (), own, {}) for name, own in counts.items()})


@pytest.mark.parametrize(
    ("refused", "stops"),
    [
        ({}, False),
        ({"a": BAD, "b": BAD}, True),
        ({"a": BAD, "b": UNCHANGED}, True),
        ({"a": UNCHANGED, "b": UNCHANGED}, True),
        ({"a": BAD, "b": BOUND}, False),
        ({"a": BAD}, False),
        ({"a": UNCHANGED}, False),
    ],
)
def test_a_run_stops_where_no_update_can_be_of_use_and_a_single_site_cannot_stop_it(
    refused: dict[str, str], stops: bool
) -> None:
    """The third is absent, was not asked, or has nothing to learn from yet."""
    for others in ({}, {"c": {"buffer": 0}}):
        why = fruitless(refused, answered(**{name: {"buffer": 3} for name in refused}, **others), ["a", "b", "c"])
        assert bool(why) is stops
    assert ("learning diverged" in why) is (stops and BAD in refused.values())


def test_the_only_site_that_learns_stops_its_own_run() -> None:
    measures = {"b": {"only_measures": 1, "buffer": 0}}
    assert fruitless({"a": BAD}, answered(a={"buffer": 3}), ["a"])
    assert fruitless({"a": BAD}, answered(a={"buffer": 3}, **measures), ["a", "b"])
    assert not fruitless({"a": BAD}, answered(a={"buffer": 3}), ["a", "b"]), "what is absent may learn"


def test_many_reasons_are_a_short_sentence() -> None:
    sites = [f"site{number}" for number in range(100)]
    why = fruitless(dict.fromkeys(sites, BAD), answered(), sites)
    assert why.count(BAD) == MOST and "; 95 more)" in why
    told = refusals({1: {"refused": dict.fromkeys(sites, BAD), "diagnostics": {"contributed": []}}})
    assert len(told) == 1 + MOST + 1 and told[-1] == "The same holds for 95 more clients."
    assert told[1].startswith("The only update of site0 could not be used: ")


def test_what_was_used_once_is_no_reason_to_warn() -> None:
    def of(contributed: list[str], **refused: str) -> dict[str, Any]:
        return {"refused": refused, "diagnostics": {"contributed": contributed}}

    assert refusals({1: of(["a", "b"]), 2: of(["a"], b=BAD), 3: None, 4: {}, 5: of([])}) == []
    assert refusals({1: of(["a", "b"]), 2: of([], a=BOUND, b=BAD)}) == [
        "In 1 of 2 rounds (2) there were updates, and none could be used: the shared adapter stayed as it was."
    ]
    void = {"refused": {}, "diagnostics": {"contributed": [], "secure_sum": {"void": "the masks do not cancel"}}}
    assert refusals({1: void})[0].startswith("In 1 of 1 rounds (1) there were updates")


def test_a_site_of_which_nothing_was_used_is_told_wherever_somebody_looks(
    table_experiment: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(table_experiment(learner=f"{__name__}:Diverges").to_yaml())
    done = CliRunner().invoke(app, ["run", str(file), "--runs", str(tmp_path)])
    assert done.exit_code == 0, "the others have learned"
    assert f"\nWARNING: {WEST}\nRun: " in done.stdout
    run = RunView.existing(tmp_path / "table")
    assert refusals_of(run) == [WEST]
    assert f"WARNING: {WEST}" in CliRunner().invoke(app, ["show", str(run.path)]).stdout
    shown = Shown.of(run)
    assert overview(shown)["problems"][0]["text"] == WEST
    assert WEST in report("table", shown, 0)[0]
    result = fedse.run(file, tmp_path, verbose=True)
    assert result.warnings == [WEST] and repr(result).endswith("; it has `.warnings`)")
    assert capsys.readouterr().out.endswith(f"WARNING: {WEST}\n")


def test_a_bad_site_does_not_stop_a_run_in_which_the_others_sit_out(table_experiment: Make, tmp_path: Path) -> None:
    hopeless = {"worlds": [{**SHORT_MAZE, "turn_limit": 1}], "start": "none"}
    experiment = table_experiment(
        learner=f"{__name__}:Diverges", clients={"east": hopeless, "west": {"worlds": [SHORT_MAZE]}}
    )
    result = fedse.run(experiment, tmp_path)
    assert not result.adapter.tensors["table"].any() and result.warnings == [
        "In 2 of 2 rounds (1, 2) there were updates, and none could be used: the shared adapter stayed as it was.",
        WEST,
    ]
    alone = experiment.model_copy(update={"name": "alone", "clients": {"west": experiment.clients["west"]}})
    with pytest.raises(
        NothingTrained, match=r"^no update of round 1 could be used \(west: 2048 of its values are not fin"
    ):
        fedse.run(alone, tmp_path)


def test_a_bad_site_in_a_governed_federation_is_left_out_and_named(table_experiment: Make, tmp_path: Path) -> None:
    sites = {name: {"worlds": [SHORT_MAZE]} for name in ("east", "north", "south", "west")}
    few = {"exploration": {"tasks": 4}, "evaluation": {"tasks": 1, "test_tasks": 0}}
    learner = f"{__name__}:Diverges"
    result = fedse.run(table_experiment(learner=learner, clients=sites, checks={"governance": {}}, **few), tmp_path)
    assert WEST in result.warnings and np.isfinite(result.adapter.tensors["table"]).all()
    assert result.adapter.tensors["table"].any()
