"""events.jsonl: written whole, read as far as it can be, followed while a run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import fedse
from fedse.errors import NothingTrained, ServerFailed
from fedse.events import (
    KINDS,
    VERSION,
    Evaluated,
    Event,
    MadeWith,
    RoundFinished,
    RoundStarted,
    RunStarted,
    Warned,
    from_json,
)
from fedse.experiments.options import Experiment
from fedse.federation.server import Server
from fedse.runs.event_log import EventLog, EventReader
from fedse.runs.reading import RunView

FIRST, SECOND = RoundStarted(round=1), RoundStarted(round=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def read(path: Path) -> list[Event]:
    return [logged.event for logged in EventReader(path).new()]


def test_a_line_has_time_version_name_and_fields(path: Path) -> None:
    EventLog(path, lambda: 1.23456).record(Warned(message="ä\n", kind="odd", details={"folder": Path("x")}))
    EventLog(path, lambda: 2).record(FIRST)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"time": 1.235, "version": 1, "event": "warning", "folder": "x", "message": "ä\n", "kind": "odd"},
        {"time": 2, "version": 1, "event": "round_started", "round": 1},
    ]


def example(kind: type[Event]) -> Event:
    """Of some kind, with something in every field."""
    values = {int: 3, float: 0.5, str: "word", bool: True}
    given: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name in {item.name for item in fields(kind)}:
            plain = next((item for item in (hint, *get_args(hint)) if item in values), None)
            named = str(hint)
            given[name] = {"a": 1} if "Mapping" in named[:30] else ["a"] if "Sequence" in named else values[plain]  # type: ignore[index]
    return kind(**given)


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"episode"}))
def test_every_event_is_read_as_it_was_written(path: Path, name: str) -> None:
    event = example(KINDS[name])
    EventLog(path, lambda: 7).record(event)
    (logged,) = EventReader(path).new()
    assert (logged.time, logged.event, logged.after) == (7, event, path.stat().st_size)


def test_episodes_are_not_logged(path: Path) -> None:
    EventLog(path, lambda: 0).record(example(KINDS["episode"]))
    assert not path.exists()


def test_what_a_later_fedse_tells_is_left_out_and_what_an_earlier_one_did_not_tell_has_its_default() -> None:
    line = {"time": 1.0, "event": "round_finished", "round": 4, "seconds": 2.0, "refused": {}, "contributed": ["a"]}
    old = from_json(line)
    assert isinstance(old, RoundFinished) and (old.round, old.late, old.absent) == (4, 0, {})
    assert from_json({**line, "version": VERSION, "weather": "fine"}) == old
    assert from_json({**line, "version": VERSION + 1}) is None
    assert from_json({**line, "event": "sunrise"}) is None
    assert from_json({key: value for key, value in line.items() if key != "seconds"}) is None


@pytest.mark.parametrize("torn", ['{"time": 1, "ev', '{"time": 2, "event": "run_started"}', "\x00" * 10])
def test_a_line_a_killed_process_left_unfinished_is_dropped(path: Path, torn: str) -> None:
    EventLog(path, lambda: 0).record(FIRST)
    with path.open("a") as file:
        file.write(torn)
    assert read(path) == [FIRST]
    EventLog(path, lambda: 1).record(SECOND)
    assert read(path) == [FIRST, SECOND]
    assert len(path.read_text().splitlines()) == 2


def test_a_log_that_is_one_torn_line_is_left_alone_until_something_happens(path: Path) -> None:
    path.write_text('{"half')
    log = EventLog(path, lambda: 0)
    assert path.read_text() == '{"half', "the run may still be refused"
    log.record(FIRST)
    assert (read(path), len(path.read_text().splitlines())) == ([FIRST], 1)


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    EventLog(tmp_path / "file" / "events.jsonl", lambda: 0).record(FIRST)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_damaged_log_is_read_as_far_as_it_goes(path: Path) -> None:
    for damage in (
        b"\0" * 64 + b"\n",
        b'{"time": 1\n',
        b"\xff\xfe\n",
        b"[1]\n",
        b'{"event": 7}\n',
        b'{"version": "x"}\n',
        b"[" * 100_000 + b"\n",
        b'{"time": 1' + b"0" * 400 + b', "event": "round_started", "round": 7}\n',
        b'{"time": [], "event": "round_started", "round": 7}\n',
    ):
        path.write_bytes(damage)
        EventLog(path, lambda: 1).record(FIRST)
        assert read(path) == [FIRST]
    assert read(path.with_name("none.jsonl")) == [] == read(path.parent)


def test_a_reader_goes_on_where_it_was_and_begins_anew_with_another_log(path: Path) -> None:
    log, reader = EventLog(path, lambda: 1), EventReader(path)
    assert reader.new() == []
    log.record(FIRST)
    with path.open("a") as file:
        file.write('{"time": 2, "event": "round_st')
    assert [logged.event for logged in reader.new()] == [FIRST]
    with path.open("a") as file:
        file.write('arted", "round": 2}\n')
    (second,) = reader.new()
    assert second.event == SECOND and reader.new() == []
    assert [logged.event for logged in EventReader(path, place=second.after).new()] == []
    path.unlink()
    EventLog(path, lambda: 3).record(FIRST)
    assert [logged.event for logged in reader.new()] == [FIRST], "shorter than what was read"


def test_a_run_is_followed_from_any_place(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    fedse.run(table_experiment(rounds=1), tmp_path)
    view = RunView.existing(tmp_path / "table")
    events = view.events()
    assert [type(logged.event) for logged in events[:3]] == [MadeWith, RunStarted, RoundStarted]
    assert isinstance(events[-1].event, Evaluated)
    assert list(islice(view.follow(pause=0), len(events))) == events
    following = view.follow(place=events[-1].after, pause=0, over=lambda: view.last_round() == 2)
    fedse.run(table_experiment(rounds=2), tmp_path)
    assert list(following) == []  # Nobody listens any more.
    later = list(islice(view.follow(place=events[-1].after, pause=0), 3))
    assert [type(logged.event) for logged in later] == [MadeWith, RunStarted, RoundStarted]
    assert later[2].event == SECOND


def test_a_run_that_stops_says_why_until_it_goes_on(
    table_experiment: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = table_experiment(rounds=2)

    def why(error: BaseException) -> str | None:
        def broken(*_: object) -> None:
            raise error

        with monkeypatch.context() as patched, pytest.raises(type(error)):
            patched.setattr(Server, "evaluate_once", broken)
            fedse.run(experiment, tmp_path)
        return RunView.existing(tmp_path / "table").told_stop()

    assert why(NothingTrained("nothing was learned.")) == "nothing was learned."
    assert str(why(KeyboardInterrupt())).startswith("it was interrupted; ")
    for error in (ValueError("what an agent said"), ServerFailed("answered with status 422: what an agent said")):
        assert why(error) == f"{type(error).__name__}; what it said was shown where the run was started."
    fedse.run(experiment, tmp_path)
    assert RunView.existing(tmp_path / "table").told_stop() is None
