"""Refused updates: nobody overlooks them, a learner that does not work stops a run, and a single site never does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.engines.local import LocalEngine
from fedse.errors import NothingTrained
from fedse.experiments.options import Experiment
from fedse.federation.checks import NOT_FINITE, NOT_KEPT, UNCHANGED
from fedse.federation.client_status import ClientStatus
from fedse.federation.exchange import NOT_NEEDED, Replies
from fedse.federation.refusals import MOST, fruitless, refusals, refusals_of
from fedse.learners.table import TableLearner
from fedse.page.overview import overview
from fedse.page.report import report
from fedse.page.shown import Shown
from fedse.runs.reading import RunView
from fedse.types import Adapter, ClientReply, ClientUpdate, Lesson
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
        ({"a": BAD, "b": UNCHANGED}, False),
        ({"a": BAD, "b": BAD, "c": UNCHANGED}, True),
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
    for others in ({}, {} if "c" in refused else {"c": {"buffer": 0}}):
        why = fruitless(refused, answered(**{name: {"buffer": 3} for name in refused}, **others), ["a", "b", "c"])
        assert bool(why) is stops
    assert ("learning diverged" in why) is (stops and BAD in refused.values())


def test_a_bad_site_beside_one_that_diverged_does_not_stop_those_that_sit_out() -> None:
    """What it says of itself makes no difference, nor whether it sends what the other one sent."""
    learners = ["a", "h", *"cdef"]
    for kind in (BAD, UNCHANGED):
        refused = {"h": BAD, "a": kind}
        for others in ({}, {name: {"buffer": 0} for name in "cdef"}, {name: {} for name in "cdef"}):
            there = answered(h={"buffer": 3}, a={"buffer": 3}, **others)
            there.absent.update({name: "Unreachable" for name in "cdef" if name not in others})
            assert not fruitless(refused, there, learners)
    everybody = answered(**{name: {"buffer": 3} for name in learners})
    assert "learning diverged" in fruitless(dict.fromkeys("hcde", BAD) | {"f": UNCHANGED}, everybody, learners)
    assert "learning diverged" not in fruitless(dict.fromkeys("hcde", UNCHANGED) | {"f": BAD}, everybody, learners)


def test_whom_the_round_did_not_wait_for_does_not_count() -> None:
    there = answered(a={"buffer": 3}, b={"buffer": 3})
    there.absent.update(dict.fromkeys("cd", NOT_NEEDED))
    assert fruitless({"a": BAD, "b": BAD}, there, "abcd")
    there.absent.update(dict.fromkeys("cd", "TooSlow"))
    assert not fruitless({"a": BAD, "b": BAD}, there, "abcd")


def test_the_only_site_that_learns_stops_its_own_run_whatever_the_others_say() -> None:
    for said in ({"only_measures": 1}, {}, {"buffer": 0}, {"learned_from": 3, "buffer": 3}):
        assert fruitless({"a": BAD}, answered(a={"buffer": 3}, b=said), ["a"]), "the server knows who learns"
        assert fruitless({"a": BAD, "b": BOUND}, answered(a={"buffer": 3}, b=said), ["a"])
        assert not fruitless({"a": BAD}, answered(a={"buffer": 3}, b=said), ["a", "b"])
    assert not fruitless({"a": BAD}, answered(a={"buffer": 3}), ["a", "b"]), "what is absent may learn"


def test_somebody_who_learned_alone_goes_on() -> None:
    there = answered(a={"diverged": 1}, b={"diverged": 1}, c={"learned_from": 3, "buffer": 3})
    assert not fruitless({"a": NOT_KEPT, "b": NOT_KEPT}, there, "abc")
    assert fruitless({"a": NOT_KEPT, "b": NOT_KEPT}, answered(a={"diverged": 1}, b={"diverged": 1}), "abc")


def test_many_reasons_are_a_short_sentence() -> None:
    sites = [f"site{number}" for number in range(100)]
    why = fruitless(dict.fromkeys(sites, BAD), answered(), sites)
    assert why.count(BAD) == MOST and "; 95 more)" in why
    told = refusals({1: {"refused": dict.fromkeys(sites, BAD), "diagnostics": {"contributed": []}}})
    assert len(told) == 1 + MOST + 1 and told[-1] == "The same holds for 95 more clients."
    assert told[1].startswith("The only update of site0 could not be used: ")


def of(contributed: list[str], **refused: str) -> dict[str, Any]:
    return {"refused": refused, "diagnostics": {"contributed": contributed}}


def void(why: str, participants: str = "", **absent: str) -> dict[str, Any]:
    told = {"participants": list(participants), "added": 0, "void": why}
    return {"refused": {}, "absent": absent, "diagnostics": {"contributed": [], "secure_sum": told}}


def test_a_site_that_is_refused_in_half_of_its_rounds_is_told_with_counts() -> None:
    honest = of(["a", "b"])
    assert refusals({1: honest, 2: honest, 3: of(["a"], b=BAD), 4: None, 5: {}, 6: of([])}) == []
    rest = {number: of(["a"], b=BAD) for number in range(2, 7)}
    assert refusals({1: honest, **rest}) == [f"5 of the 6 updates of b could not be used, the last in round 6 ({BAD})."]
    assert refusals({1: honest, 2: of(["a"], b=BAD)}) == [
        f"1 of the 2 updates of b could not be used, the last in round 2 ({BAD})."
    ]
    assert refusals({1: honest, 2: honest, 3: of([], a=BOUND, b=BAD)}) == [
        "In 1 of 3 rounds (3) there were updates, and none could be used: the shared adapter stayed as it was."
    ]


def test_who_says_that_it_learned_alone_hides_no_round_that_came_to_nothing() -> None:
    clients = {"a": {"bytes": 8, "state": "refused"}, "b": {"bytes": 0, "state": ClientStatus.KEPT}}
    assert refusals({1: {**of([], a=BAD), "clients": clients}})[0].startswith("In 1 of 1 rounds (1) there were updates")
    clients["a"]["bytes"] = 0
    assert refusals({1: {**of([], a=NOT_KEPT), "clients": clients}}) == [
        f"The only lesson of a could not be used: it has learned nothing ({NOT_KEPT})."
    ]


def test_void_sums_name_who_was_missing_and_otherwise_why() -> None:
    lacks = void("of its 3 participants some are missing (west: OutOfRange)", "abw", w="OutOfRange", z="Busy")
    assert refusals({1: lacks, 2: of(["a", "b", "w"]), 3: lacks}) == [
        "In 2 of 3 rounds (1, 3) the secure sum was void, and the shared adapter stayed as it was.",
        "Void sums lacked the part of w in 2 of them (OutOfRange).",
    ]
    assert refusals({1: void("the masks do not cancel", "ab")}) == [
        "In 1 of 1 rounds (1) the secure sum was void, and the shared adapter stayed as it was "
        "(in round 1: the masks do not cancel)."
    ]
    assert refusals({1: void("nobody was asked to add to it", a="Unreachable")}) == [
        "In 1 of 1 rounds (1) the secure sum was void, and the shared adapter stayed as it was "
        "(in round 1: nobody was asked to add to it)."
    ]
    # What a site could not keep was its own: its part of the sum was there.
    beyond = {**void("of the mean of its updates: too long", "abw"), "refused": {"w": NOT_KEPT}}
    assert refusals({1: beyond})[0].endswith("(in round 1: of the mean of its updates: too long).")
    assert not any("lacked" in told for told in refusals({1: beyond}))
    sites = [chr(ord("a") + number) for number in range(20)]
    many = refusals({1: void("some are missing", "".join(sites), **dict.fromkeys(sites, "Unreachable"))})
    assert many[1].endswith("e in 1 of them (Unreachable), 15 more.")


@pytest.mark.slow
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


class Withholding(LocalEngine):
    """East tells nothing of itself."""

    def poll(self, seconds: float | None = None) -> list[ClientReply]:
        return [
            replace(reply, counts={}) if isinstance(reply, ClientUpdate) and reply.client == "east" else reply
            for reply in super().poll(seconds)
        ]


def test_a_site_that_only_measures_and_tells_nothing_keeps_no_lost_run_going(
    table_experiment: Make, tmp_path: Path
) -> None:
    experiment = table_experiment(
        learner=f"{__name__}:Diverges",
        engine=f"{__name__}:Withholding",
        clients={"east": {"worlds": [SHORT_MAZE], "learns": False}, "west": {"worlds": [SHORT_MAZE]}},
    )
    with pytest.raises(NothingTrained, match=r"^no update of round 1 could be used \(west: 2048"):
        fedse.run(experiment, tmp_path)


class Posing(LocalEngine):
    """East learns, and claims that it only measures."""

    def poll(self, seconds: float | None = None) -> list[ClientReply]:
        return [
            replace(reply, vector=None, encoded=None, counts={**reply.counts, "only_measures": 1, "learned_from": 0})
            if isinstance(reply, ClientUpdate) and reply.client == "east" and reply.counts
            else reply
            for reply in super().poll(seconds)
        ]


def test_a_site_that_claims_to_measure_only_stops_nobody(table_experiment: Make, tmp_path: Path) -> None:
    experiment = table_experiment(learner=f"{__name__}:Diverges", engine=f"{__name__}:Posing")
    assert WEST in fedse.run(experiment, tmp_path).warnings
