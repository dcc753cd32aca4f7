"""Who is asked, how long a round waits, and what becomes of those who are late."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedse
from clock import Clock
from factored_table import FactoredLearner
from fedse.adapters.files import read_adapter
from fedse.errors import BadInput, RunConflict, TooFewClients
from fedse.events import Event, Warned
from fedse.experience.journal import Journal
from fedse.experiments.options import Experiment
from fedse.experiments.stored_adapter import stored_adapter
from fedse.federation import absence
from fedse.federation import exchange as exchanging
from fedse.federation.exchange import Exchange, ParticipationOptions
from fedse.federation.server import LimitOptions
from fedse.runs.reading import RunView
from fedse.types import ClientFailure, ClientUpdate, RoundTask, Task
from fedse.worlds.maze import Maze
from short_maze import SHORT_MAZE

NAMES = ("a", "b", "c", "d")


def task(number: int) -> RoundTask:
    return RoundTask(number, "train", np.zeros(1, np.float32), (("x", (1,)),), {})


class Timetable:
    """An engine whose clients answer after so many seconds each, by round; None: never. `down` cannot be reached."""

    clients = NAMES

    def __init__(self, clock: Clock, seconds: Mapping[str, float | None], down: frozenset[str] = frozenset()) -> None:
        self.clock = clock
        self.seconds = dict(seconds)
        self.down = set(down)
        self.sent: list[tuple[str, str]] = []
        self.given_up: list[str] = []
        self.arrived: list[ClientUpdate | ClientFailure] = []

    def present(self) -> set[str]:
        return set(self.clients) - self.down

    def give_up(self, client: str) -> None:
        self.given_up.append(client)

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        for client, item in tasks.items():
            self.sent.append((client, item.name))
            wait = self.seconds.get(client, 0.0)
            if wait is not None and client not in self.down:
                update = ClientUpdate(client, item.round, None, (), {}, {}, (), item.name)
                self.clock.after(wait, partial(self.arrived.append, update))

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        until = self.clock.now + (60 if seconds is None else seconds)
        self.clock.sleep(0)
        while not self.arrived and self.clock.now < until:
            self.clock.sleep(min(until, self.clock.next_moment()) - self.clock.now)
        found = list(self.arrived)
        self.arrived.clear()
        return found


class Notes:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (exchanging, absence):
        monkeypatch.setattr(module, "time", clock)
    return clock


def exchange(engine: Any, **options: Any) -> Exchange:
    return Exchange(engine, ParticipationOptions(**options), 0, Notes())


def test_a_slow_client_is_left_behind_at_the_deadline_and_asked_again_in_the_next_round(clock: Clock) -> None:
    engine = Timetable(clock, {"d": 30.0})
    asking = exchange(engine, deadline_minutes=0.2 / 60)
    first = asking.ask(NAMES, task(1), lambda update: update)
    engine.seconds["d"] = 0.0
    second = asking.ask(NAMES, task(2), lambda update: update)
    assert (sorted(first.updates), first.absent) == (["a", "b", "c"], {"d": "TooSlow"})
    assert sorted(second.updates) == list(NAMES)


def test_a_round_closes_at_its_quorum_and_a_late_update_is_dropped_and_counted_once(clock: Clock) -> None:
    engine = Timetable(clock, {"d": 0.3})
    asking = exchange(engine, quorum=0.75)
    first = asking.ask(NAMES, task(1), lambda update: update)
    second = asking.ask(NAMES, task(2), lambda update: update)
    assert (sorted(first.updates), first.absent, first.late) == (["a", "b", "c"], {"d": "NotNeeded"}, 0)
    assert second.absent == {"d": "Busy"} and ("d", "train-0002") not in engine.sent
    clock.sleep(0.35)
    third = asking.ask(NAMES, task(3), lambda update: update)
    assert second.late + third.late == 1
    asking.settle()
    fourth = asking.ask(NAMES, task(4), lambda update: update)
    assert "d" not in fourth.absent or fourth.absent["d"] == "NotNeeded"
    assert ("d", "train-0004") in engine.sent


def test_an_evaluation_waits_for_everybody_whatever_the_quorum_of_rounds(clock: Clock) -> None:
    engine = Timetable(clock, {"d": 0.3})
    asking = exchange(engine, quorum=0.5)
    found = asking.ask(NAMES, replace(task(1), kind="evaluate"), lambda update: update)
    assert (sorted(found.updates), found.absent) == (list(NAMES), {})


def test_an_update_that_comes_while_an_evaluation_waits_for_its_site_is_counted_in_the_next_round(clock: Clock) -> None:
    engine = Timetable(clock, {"d": 0.3})
    asking = exchange(engine, quorum=0.75)
    asking.ask(NAMES, task(1), lambda update: update)
    asking.settle()
    assert asking.ask(NAMES, replace(task(1), kind="evaluate"), lambda update: update).late == 0
    engine.seconds["d"] = 0.0
    assert [asking.ask(NAMES, task(number), lambda update: update).late for number in (2, 3)] == [1, 0]


def test_a_client_that_has_gone_is_waited_for_once_and_asked_when_it_is_back(clock: Clock) -> None:
    engine = Timetable(clock, {}, down=frozenset({"b"}))
    asking = exchange(engine, absent_minutes=0.2 / 60)
    assert asking.ask(NAMES, task(1), lambda update: update).absent == {"b": "Unreachable"}
    began = clock.now
    assert asking.ask(NAMES, task(2), lambda update: update).absent == {"b": "Unreachable"}
    assert clock.now == began
    engine.down.clear()
    assert asking.ask(NAMES, task(3), lambda update: update).absent == {}
    assert [number for client, number in engine.sent if client == "b"] == ["train-0003"]


def test_the_deadline_counts_from_when_the_clients_are_there(clock: Clock) -> None:
    """Slow starters are not left out of the first round."""
    engine = Timetable(clock, {}, down=frozenset({"a", "b", "c"}))
    clock.after(0.5, engine.down.clear)
    asking = exchange(engine, deadline_minutes=0.2 / 60, absent_minutes=5 / 60)
    found = asking.ask(NAMES, task(1), lambda update: update)
    assert sorted(found.updates) == list(NAMES) and found.absent == {}


def test_without_a_deadline_a_client_that_goes_away_in_a_round_is_given_up_in_time(clock: Clock) -> None:
    engine = Timetable(clock, {"b": None})
    clock.after(0.1, partial(engine.down.add, "b"))
    asking = exchange(engine, absent_minutes=0.3 / 60)
    found = asking.ask(NAMES, task(1), lambda update: update)
    assert sorted(found.updates) == ["a", "c", "d"] and found.absent == {"b": "Unreachable"}
    assert engine.given_up == ["b"]


def test_a_client_that_went_away_while_busy_does_not_hold_up_the_evaluation(clock: Clock) -> None:
    engine = Timetable(clock, {"d": None})
    asking = exchange(engine, quorum=0.75, absent_minutes=0.2 / 60)
    asking.ask(NAMES, task(1), lambda update: update)
    engine.down.add("d")
    began = clock.now
    asking.settle()
    assert clock.now - began < 5 and engine.given_up == ["d"]


def test_nobody_is_given_up_and_no_quorum_closes_a_round_below_the_least_number_of_answers(clock: Clock) -> None:
    engine = Timetable(clock, {"c": 0.4}, down=frozenset({"b", "d"}))
    clock.after(1.0, partial(engine.down.discard, "b"))
    asking = exchange(engine, min_clients=3, quorum=0.25, absent_minutes=0.2 / 60)
    found = asking.ask(NAMES, task(1), lambda update: update)
    assert sorted(found.updates) == ["a", "b", "c"] and found.absent == {"d": "Unreachable"}


def test_a_least_number_that_no_round_can_reach_is_refused(table_experiment: Callable[..., Experiment]) -> None:
    with pytest.raises(BadInput, match="is 3, and 2 clients are asked"):
        table_experiment(participation={"min_clients": 3})
    with pytest.raises(BadInput, match="is 2, and 1 clients are asked"):
        table_experiment(participation={"min_clients": 2, "fraction": 0.5})


def test_what_is_given_up_at_the_deadline_is_too_slow_or_unreachable_whatever_the_engine_calls_it(clock: Clock) -> None:
    class Lost(Timetable):
        def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
            if answers := super().poll(seconds):
                return answers
            return [ClientFailure(client, "train-0001", "Lost") for client in ("a", "b")]

    engine = Lost(clock, {"a": None, "b": None}, down=frozenset({"b"}))
    found = exchange(engine, deadline_minutes=0.1 / 60, absent_minutes=0.1 / 60).ask(
        NAMES, task(1), lambda update: update
    )
    assert (sorted(found.updates), found.absent) == (["c", "d"], {"a": "TooSlow", "b": "Unreachable"})


def test_too_few_answers_stop_the_run_with_the_reasons(clock: Clock) -> None:
    asking = exchange(Timetable(clock, {"a": None, "b": None}), deadline_minutes=0.1 / 60, min_clients=3)
    with pytest.raises(TooFewClients, match=r"2 of 4 clients answered train-0001 \(a: TooSlow; b: TooSlow\)"):
        asking.ask(NAMES, task(1), lambda update: update)


def test_a_hub_that_lost_its_run_folder_is_told_so(clock: Clock) -> None:
    class Later(Timetable):
        def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
            return [ClientFailure(client, "train-0001", "OldRound") for client in NAMES]

    with pytest.raises(
        TooFewClients, match=r"a: OldRound.*give the folder back \(--runs\), or begin a run with another"
    ):
        exchange(Later(clock, {})).ask(NAMES, task(1), lambda update: update)


def test_sites_with_another_experiment_are_not_asked_again_with_the_same_command(clock: Clock) -> None:
    class Elsewhere(Timetable):
        def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
            return [ClientFailure(client, "train-0001", "OtherTerms") for client in NAMES]

    with pytest.raises(TooFewClients, match=r"a: OtherTerms.*Give these sites this experiment's file") as raised:
        exchange(Elsewhere(clock, {})).ask(NAMES, task(1), lambda update: update)
    assert "the same command repeats it" not in str(raised.value)


def test_strangers_are_not_heard(clock: Clock) -> None:
    engine = Timetable(clock, {"a": None})
    engine.arrived.append(ClientUpdate("mallory", 1, None, (), {}, {}, (), "train-0001"))
    found = exchange(engine, deadline_minutes=0.1 / 60).ask(NAMES, task(1), lambda update: update)
    assert sorted(found.updates) == ["b", "c", "d"]


def test_who_is_invited_depends_on_seed_and_round_only_and_everybody_has_a_turn(clock: Clock) -> None:
    class Many(Timetable):
        clients = tuple(f"c{number:04d}" for number in range(1000))

    asking = exchange(Many(clock, {}), fraction=0.05)
    rounds = [asking.invited(number) for number in range(1, 201)]
    assert {len(names) for names in rounds} == {50}
    assert rounds == [exchange(Many(clock, {}), fraction=0.05).invited(number) for number in range(1, 201)]
    assert len({name for names in rounds for name in names}) > 990


@pytest.mark.parametrize(("fraction", "count"), [(0.25, 1), (0.5, 2), (0.75, 3)])
def test_in_turn_everybody_is_asked_as_often(clock: Clock, fraction: float, count: int) -> None:
    asking = exchange(Timetable(clock, {}), fraction=fraction, draw="in_turn")
    rounds = [asking.invited(number) for number in range(1, 9)]
    assert {len(set(names)) for names in rounds} == {count}
    assert Counter(name for names in rounds for name in names) == dict.fromkeys(NAMES, 2 * count)
    assert rounds[:4] == rounds[4:]
    # Two rounds after one another have nobody in common as long as that is possible.
    assert all(len({*one, *two}) == min(4, 2 * count) for one, two in pairwise(rounds))
    options, orders = ParticipationOptions(fraction=0.25, draw="in_turn"), set()
    for seed in range(20):
        one = Exchange(Timetable(clock, {}), options, seed, Notes())
        orders.add(tuple(one.invited(number)[0] for number in (1, 2, 3, 4)))
    assert len(orders) > 5


def reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]


def test_a_run_with_sampling_asks_half_of_the_clients_in_each_round(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(rounds=6, participation={"fraction": 0.5}), tmp_path)
    asked = [sorted(report["clients"]) for report in reports(result.folder)]
    assert {len(names) for names in asked} == {1} and {"east", "west"} == {name for names in asked for name in names}


def test_an_adapter_is_handed_from_client_to_client(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    handed = {"fraction": 0.5, "draw": "in_turn"}
    result = fedse.run(table_experiment(rounds=4, participation=handed), tmp_path)
    asked = [sorted(report["clients"]) for report in reports(result.folder)]
    assert asked in ([["east"], ["west"]] * 2, [["west"], ["east"]] * 2)
    stopped = fedse.run(table_experiment(name="stopped", rounds=3, participation=handed), tmp_path)
    fedse.run(table_experiment(name="stopped", rounds=4, participation=handed), tmp_path)
    assert [report["adapter"] for report in reports(stopped.folder)] == [
        report["adapter"] for report in reports(result.folder)
    ]


@pytest.mark.parametrize("clients", [2, 3, 6, 7, 11])
def test_a_turn_needs_somebody_who_waits_and_the_advice_asks_one(
    table_experiment: Callable[..., Experiment], clients: int
) -> None:
    given = {f"c{number}": {"worlds": [SHORT_MAZE]} for number in range(clients)}
    fraction = {"fraction": 1 - 0.4 / clients} if clients % 2 else {}
    with pytest.raises(BadInput, match=r"`participation\.fraction: .*` asks all: set it to") as refused:
        fedse.run(table_experiment(clients=given, participation={"draw": "in_turn", **fraction}))
    advised = re.search(r"([\d.]+) for one client", str(refused.value))
    assert advised and ParticipationOptions(fraction=float(advised[1])).asked(clients) == 1


def test_the_local_engine_finishes_what_a_round_closed_without_and_its_update_is_late(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    result = fedse.run(table_experiment(rounds=3, participation={"quorum": 0.5}), tmp_path)
    found = reports(result.folder)
    assert [report["diagnostics"]["contributed"] for report in found] == [["east"], ["east"], ["east"]]
    assert [report["absent"]["west"] for report in found] == ["NotNeeded", "Busy", "NotNeeded"]
    assert [report["late"] for report in found] == [0, 1, 0]


def test_a_run_with_clients_that_were_late_goes_on_without_doing_a_round_again(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    """A client whose first round was late has begun its buffer, of which the record of that round knows nothing."""
    quorum = {"quorum": 0.5}
    told = Notes()
    for rounds in (1, 2, 3):
        result = fedse.run(table_experiment(rounds=rounds, participation=quorum), tmp_path, trackers=[told])
        assert [row["client"] for row in result.validation["worlds"]] == ["east", "west"]
    assert "fell_back" not in [event.kind for event in told.events if isinstance(event, Warned)]


class SlowMaze(Maze):
    def act(self, action: str) -> Any:
        time.sleep(0.05)
        return super().act(action)


def test_a_site_gives_up_at_the_deadline_and_can_play_again(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    clients = {"slow": {"worlds": [{"name": f"{__name__}:SlowMaze", "mode": "original"}]}}
    late = table_experiment(clients=clients, participation={"deadline_minutes": 0.3 / 60}, rounds=1)
    with pytest.raises(TooFewClients, match="slow: Too"):
        fedse.run(late, tmp_path)
    assert not (tmp_path / "table/clients/slow/episodes/0001.jsonl").exists()


def test_a_run_goes_on_with_more_patience_but_not_with_other_clients_or_a_smaller_quorum(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    fedse.run(table_experiment(rounds=1), tmp_path)
    patient = {"min_clients": 2, "deadline_minutes": 9.0}
    fedse.run(table_experiment(participation=patient, sending={"max_megabytes": 1.0}), tmp_path)
    for changes, key in [
        ({"participation": {"fraction": 0.5}}, r"participation\.fraction"),
        ({"participation": {"quorum": 0.5}}, r"participation\.quorum"),
        ({"sending": {"precision": "int8"}}, r"sending\.precision"),
        ({"limits": {"on_errors": "leave_out"}}, "limits"),
    ]:
        with pytest.raises(RunConflict, match=rf"\(different: {key}\)"):
            fedse.run(table_experiment(**changes), tmp_path)


def test_whom_to_leave_out_is_part_of_the_experiment_and_where_to_stop_is_not() -> None:
    stop, sooner = LimitOptions(max_error_share=0.1), LimitOptions(max_error_share=0.2)
    assert stop.identity() == sooner.identity() == {"on_errors": "stop"}
    left_out = LimitOptions(max_error_share=0.1, on_errors="leave_out")
    assert left_out.identity() != LimitOptions(max_error_share=0.2, on_errors="leave_out").identity()


class BreakingMaze(Maze):
    def begin(self, task: str) -> str:
        raise RuntimeError("the sensor is gone")


def test_a_broken_client_can_be_left_out(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    clients = {
        "east": {"worlds": [SHORT_MAZE]},
        "west": {"worlds": [{"name": f"{__name__}:BreakingMaze", "mode": "original"}]},
    }
    result = fedse.run(
        table_experiment(clients=clients, rounds=2, start="none", filter="none", limits={"on_errors": "leave_out"}),
        tmp_path,
    )
    assert [report["absent"] for report in reports(result.folder)] == [{"west": "LeftOut"}] * 2
    assert [report["diagnostics"]["contributed"] for report in reports(result.folder)] == [["east"]] * 2
    assert result.test["absent"] == {"west": "LeftOut"}


class SometimesBroken(Maze):
    """Cannot say what its tasks are in round 3."""

    broken = False

    def tasks(self, split: str) -> list[Task]:
        if SometimesBroken.broken:
            raise LookupError("the disk is gone")
        return super().tasks(split)


class BreaksThatMaze(FactoredLearner):
    """Learning of round 2 comes after all playing of round 2, and before all of round 3."""

    def enter(self, round: int) -> None:
        SometimesBroken.broken = round == 2


def test_a_site_that_shares_nothing_goes_on_with_what_it_had_after_a_round_without_it(
    factored: Callable[..., Experiment], tmp_path: Path
) -> None:
    SometimesBroken.broken = False
    clients = {
        "east": {"worlds": [SHORT_MAZE]},
        "west": {"worlds": [{**SHORT_MAZE, "name": f"{__name__}:SometimesBroken"}]},
    }
    setting = {"clients": clients, "method": "local_se", "learner": f"{__name__}:BreaksThatMaze"}
    result = fedse.run(factored(**setting, rounds=4, limits={"on_errors": "leave_out"}), tmp_path)
    assert [list(report["absent"]) for report in reports(result.folder)] == [[], [], ["west"], []]
    adapters = result.folder / "clients/west/adapters"
    assert sorted(path.name for path in adapters.iterdir()) == ["0001", "0002", "0004"]
    entered = {episode.adapter for episode in Journal(result.folder / "clients/west/episodes").read("0004")}
    assert entered == {read_adapter(adapters / "0002").digest()}
    run = RunView(result.folder)
    assert stored_adapter(run, 3, "west").digest() == stored_adapter(run, 2, "west").digest()
