"""A site that joins later: before its round it does nothing, then it is measured first and takes part like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedse
from fedse.adapters.files import read_adapter
from fedse.cli import app
from fedse.errors import BadInput
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run
from fedse.experiments.transfer import own_adapter, transfer
from fedse.federation.exchange import Exchange, ParticipationOptions
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import Trackers
from short_maze import SHORT_MAZE

Make = Callable[..., Experiment]
OTHER = {**SHORT_MAZE, "turn_limit": 10}
SLOW = {"name": "table", "rate": 0.5}


@pytest.fixture
def make(table_experiment: Make) -> Make:
    """Two sites and, from round 3 of 4, a third one."""

    def build(newcomer: bool = True, **changes: Any) -> Experiment:
        content = table_experiment(learner=SLOW, rounds=4).model_dump(mode="json")
        for switch in ("method", "learning", "exploring", "sharing", "pooled"):
            del content[switch]
        if newcomer:
            content["clients"]["later"] = {"worlds": [OTHER], "joins": 3}
        return Experiment.model_validate({**content, **changes})

    return build


def report(folder: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rounds/{number:04d}/report.json").read_text())
    return found


def rows(measured: Any, client: str) -> list[tuple[int, int, int]]:
    return [(row["successes"], row["episodes"], row["steps"]) for row in measured["worlds"] if row["client"] == client]


@pytest.mark.slow
def test_before_its_round_a_site_does_nothing_and_changes_nothing(make: Make, tmp_path: Path) -> None:
    folder = fedse.run(make(), tmp_path / "with").folder
    without = fedse.run(make(newcomer=False, rounds=2), tmp_path / "without").folder
    assert [sorted(report(folder, number)["clients"]) for number in (1, 2, 3, 4)] == [
        ["east", "west"],
        ["east", "west"],
        ["east", "later", "west"],
        ["east", "later", "west"],
    ]
    assert not any(report(folder, number)["absent"] for number in (1, 2, 3, 4)), "it is not missed before its time"
    for number in (1, 2):
        assert RunFolder.existing(folder).digest_of(number) == RunFolder.existing(without).digest_of(number)
    journal = Journal(folder / "clients/later/episodes")
    assert sorted(journal.names())[:2] == ["0003", "0004"]
    assert {item.round for item in journal.read("0003")} == {3}


@pytest.mark.slow
def test_on_its_first_day_the_adapter_is_measured_before_it_learns(make: Make, tmp_path: Path) -> None:
    result = fedse.run(make(evaluation={"tasks": 5, "tasks_per_round": 0, "test_tasks": 5}), tmp_path)
    assert not rows(report(result.folder, 3)["evaluation"], "east"), "the others are between two rounds"
    ends = [
        [row["success"] for row in measured["worlds"] if row["client"] != "later"]
        for measured in (report(result.folder, 1)["evaluation"], result.validation)
    ]
    assert result.curve == {0: sum(ends[0]) / 2, 4: sum(ends[1]) / 2}, "the same worlds at both ends"
    with open_run(result.folder) as federation:
        entered = federation.server.evaluate(2, "validation")
    assert rows(report(result.folder, 3)["evaluation"], "later") == rows(entered, "later") != []
    assert rows(result.validation, "later") and rows(result.test, "later"), "evaluations ask everybody"


@pytest.mark.parametrize(
    ("word", "last"),
    [
        ("fed_se", 1),
        pytest.param("local_se", 2, marks=pytest.mark.slow),
        *(pytest.param(*case, marks=pytest.mark.torture) for case in (("fed_se", 2), ("fed_se", 3), ("local_se", 1))),
        pytest.param("local_se", 3, marks=pytest.mark.torture),
    ],
)
def test_a_run_goes_on_before_and_after_somebody_joined(word: str, last: int, make: Make, tmp_path: Path) -> None:
    whole = fedse.run(make(method=word), tmp_path / "whole")
    broken = fedse.run(make(method=word, rounds=max(3, last)), tmp_path / "broken")
    RunFolder.existing(broken.folder).fall_back(last, [])
    again = fedse.run(make(method=word), tmp_path / "broken")
    assert again.adapter.digest() == whole.adapter.digest()
    assert again.test == whole.test
    for number in (3, 4):
        assert report(again.folder, number)["clients"] == report(whole.folder, number)["clients"]


@pytest.mark.slow
def test_one_that_shares_nothing_begins_from_the_initial_adapter(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fedse.run(make(method="local_se"), tmp_path)
    own = result.folder / "clients/later/adapters"
    assert sorted(path.name for path in own.iterdir()) == ["0003", "0004"]
    with open_run(result.folder) as federation:
        (later,) = (client for client in federation.clients if client.name == "later")
        lesson = later.experience.lesson(3, federation.initial_adapter())
        assert lesson is not None
        ((learned, _),) = federation.engine.teach([lesson], 3)  # type: ignore[attr-defined]
        assert learned.digest() == read_adapter(own / "0003").digest()
        untouched = federation.server.evaluate(0, "validation")
        assert rows(report(result.folder, 3)["evaluation"], "later") == rows(untouched, "later")
        assert rows(federation.server.evaluate(2, "validation"), "later") == rows(untouched, "later")
        assert own_adapter(federation.server, later, 2) is None
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["export", str(result.folder), "out", "--client", "later", "--round", "2"])
    assert told.exit_code == 2 and "it joins in round 3" in str(told.stderr or told.output)


@pytest.mark.slow
def test_transfer_leaves_out_who_has_not_joined(make: Make, tmp_path: Path) -> None:
    folder = fedse.run(make(), tmp_path).folder
    RunFolder.existing(folder).fall_back(2, [])
    with open_run(folder) as federation:
        found = transfer(federation.server, federation.clients, "validation")
    assert set(found["rows"]) == {"(beginning)", "(shared)", "east", "west"}
    assert {row["client"] for row in found["rows"]["east"]["worlds"]} == {"east", "later", "west"}


class Nobody:
    clients = ("a", "b", "c", "d", "e")


def test_a_share_is_drawn_from_those_who_are_there() -> None:
    asking = Exchange(Nobody(), ParticipationOptions(fraction=0.5), 0, Trackers([]), joins={"d": 4, "e": 6})  # type: ignore[arg-type]
    invited = {number: asking.invited(number) for number in range(1, 40)}
    assert [len(invited[number]) for number in (1, 3, 4, 5, 6, 9)] == [2, 2, 2, 2, 3, 3]
    assert not {"d", "e"} & {name for number in (1, 2, 3) for name in invited[number]}
    assert {name for number in range(6, 40) for name in invited[number]} == set(Nobody.clients)
    everybody = Exchange(Nobody(), ParticipationOptions(fraction=0.5), 0, Trackers([]))  # type: ignore[arg-type]
    assert all(everybody.invited(number) == invited[number] for number in range(6, 40))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["clients.maze.joins=3"],
            "client 'maze' has `joins: 3` and would never take part, because the experiment has 2",
        ),
        (["clients.maze.joins=2", "clients.wordle.joins=2"], "every client joins after round 1"),
        (["clients.maze.joins=0"], "clients.maze.joins: input should be greater than or equal to 1"),
        (["clients.maze.joins=2", "pooled=true"], "leaves one client with all worlds from the first round on"),
        (
            ["clients.maze.joins=2", "participation.min_clients=2"],
            "`participation.min_clients` is 2, and 1 clients",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(tiny_file: Path, settings: list[str], sentence: str) -> None:
    with pytest.raises(BadInput) as raised:
        fedse.load_experiment(tiny_file, settings)
    assert sentence in str(raised.value), raised.value
    assert fedse.load_experiment(tiny_file, ["clients.maze.joins=2"]).clients["maze"].joins == 2
