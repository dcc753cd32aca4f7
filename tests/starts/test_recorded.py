"""Conversations from a file: what is exported comes back token by token, and what cannot be used is named with its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedse
from assembled import assembled
from fedse.errors import BadInput, RunConflict
from fedse.experience.buffer import read_file
from fedse.experience.export import export
from fedse.experiments.components import build_components
from fedse.experiments.options import Experiment
from fedse.experiments.running import prepare
from fedse.learners.table import TableLearner
from fedse.models.chat import ByteChat
from fedse.models.table import Table
from fedse.starts.demonstrations import Demonstrations
from fedse.starts.recorded import Recorded
from fedse.types import Lesson, Outcome, Purpose, Trajectory
from fedse.worlds.foreign.agentgym_client import AgentGymServer
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle

TABLE: Any = Table()
REPLY = "Thought: up.\n\nAction:\nmove up"


def human(value: Any, **changes: Any) -> dict[str, Any]:
    return {"from": "human", "loss": None, "value": value, **changes}


def gpt(value: Any, loss: Any = True, **changes: Any) -> dict[str, Any]:
    return {"from": "gpt", "loss": loss, "value": value, **changes}


def record(item: str = "maze_3", *later: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A conversation as AgentGym writes it; `later` stands in place of its only turn."""
    opening = [human("Find the goal."), gpt("OK. I'll follow your instructions.", False)]
    return {"conversations": [*opening, *(later or (human("A wall."), gpt(REPLY)))], "item_id": item, **changes}


def written(folder: Path, content: Any, name: str = "shown.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=4), encoding="utf-8")
    return path


def begin(path: Path, world: Any = None, label: str = "maze", **options: Any) -> list[Trajectory]:
    return Recorded(path, **options).trajectories("site", label, world or Maze(), ByteChat(), 0)


@pytest.mark.parametrize("world", [Maze(rules="brief"), Wordle()], ids=["maze", "wordle"])
@pytest.mark.parametrize("language_model", [True, False])
def test_exported_demonstrations_come_back_with_the_same_ids_and_masks(
    tiny: Any, tmp_path: Path, world: Any, language_model: bool
) -> None:
    chat = tiny.chat if language_model else ByteChat()
    shown = Demonstrations(6).trajectories("site", world.name, world, chat, 0)
    assert export(shown, tmp_path / "shown.json") == 6
    again = Recorded(tmp_path / "shown.json").trajectories("site", world.name, world, chat, 0)
    assert [item.token_ids for item in again] == [item.token_ids for item in shown]
    assert [item.train_mask for item in again] == [item.train_mask for item in shown]
    # A conversation tells neither the kind of the task nor what single actions were worth.
    told = [replace(item, category="", steps=tuple(replace(step, reward=0.0) for step in item.steps)) for item in shown]
    assert again == told
    assert all(any(item.train_mask) and not all(item.train_mask) for item in again)


def test_a_run_starts_from_what_another_collected(
    table_experiment: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fedse.run(table_experiment(exploration={"tasks": 25}), tmp_path)
    collected = read_file(first.folder / "clients/east/buffer.sqlite")
    assert {item.purpose for item in collected} == {Purpose.EXPLORE, Purpose.DEMONSTRATE}
    export(collected, tmp_path / "collected.json")

    monkeypatch.chdir(tmp_path)
    second = fedse.run(table_experiment(name="second", start="./collected.json", rounds=1), tmp_path)
    for client in ("east", "west"):
        held = read_file(second.folder / f"clients/{client}/buffer.sqlite")
        began = [item for item in held if item.round == 0]
        assert {item.purpose for item in began} == {Purpose.DEMONSTRATE}
        assert sorted(item.token_ids for item in began) == sorted({item.token_ids for item in collected})


def test_agentgyms_record_becomes_a_successful_trajectory_in_the_chats_own_tokens(tmp_path: Path) -> None:
    chat = ByteChat()
    path = written(tmp_path, [record("maze_3", human("A wall."), gpt(REPLY), human("The goal."))])
    (found,) = begin(path)
    ids = [*chat.opening("Find the goal."), *chat.turn("A wall."), *chat.reply(REPLY)]
    assert found.token_ids == tuple(ids)
    assert [token for token, learned in zip(ids, found.train_mask, strict=True) if learned] == chat.reply(REPLY)
    assert (found.task, found.world, found.client, found.round) == ("3", "maze", "site", 0)
    assert (found.purpose, found.outcome, found.closing) == (Purpose.DEMONSTRATE, Outcome.SUCCESS, "The goal.")
    assert (found.steps[0].thought, found.steps[0].action) == ("up.", "move up")


def test_a_reply_with_loss_false_is_read_and_not_learned_from(tmp_path: Path) -> None:
    chat = ByteChat()
    turns = (
        human("one"),
        gpt("no action here", False),
        human("two"),
        gpt(REPLY, False),
        human("three"),
        gpt(REPLY, None),
    )
    (found,) = begin(written(tmp_path, [record("maze_1", *turns)]))
    learned = bytes(t for t, on in zip(found.token_ids, found.train_mask, strict=True) if on and t < 256).decode()
    assert learned == REPLY
    assert "no action here" in chat.text(found.token_ids)
    assert [step.learned for step in found.steps] == [False, False, True]
    adapter, _ = TableLearner(TABLE).learn(Lesson(TABLE.initial_adapter(0), [found], 0))
    assert [adapter.tensors["table"][TABLE.row(seen)].any() for seen in ("one", "two", "three")] == [False, False, True]
    export([found], tmp_path / "again.json")
    assert begin(tmp_path / "again.json") == [found]


def test_a_conversation_may_have_no_loss_at_all(tmp_path: Path) -> None:
    content = record()
    for message in content["conversations"]:
        del message["loss"]
    (found,) = begin(written(tmp_path, [content]))
    assert bytes(t for t, on in zip(found.token_ids, found.train_mask, strict=True) if on and t < 256).decode() == REPLY


@pytest.mark.parametrize("name", ["shown.json", "shown.jsonl", "shown.txt"])
def test_an_array_and_lines_are_told_apart_by_what_is_in_them(tmp_path: Path, name: str) -> None:
    records = [record(f"maze_{number}") for number in range(3)]
    array = written(tmp_path, "\ufeff\n" + json.dumps(records), name)
    from_array = begin(array)
    lines = written(tmp_path, "\r\n\n".join(json.dumps(item) for item in records) + "\n", name)
    assert begin(lines) == from_array
    assert [item.task for item in from_array] == ["0", "1", "2"]


@pytest.mark.parametrize("item", ["maze_7", "MAZE_7", "lmrlgym_maze_7", "LMRLGym_Maze_7"])
def test_records_find_their_world_by_the_beginning_of_the_item_id(tmp_path: Path, item: str) -> None:
    path = written(tmp_path, [record("wordle_1"), record(item), record("mazes_2")])
    assert [found.task for found in begin(path)] == ["7"]
    assert [found.task for found in begin(path, label="Maze")] == ["7"]
    assert [found.task for found in begin(path, label="MyMaze")] == ["7"]
    assert [found.task for found in begin(path, label="wordle", world=Wordle())] == ["1"]


def test_a_world_behind_an_agentgym_server_takes_the_records_of_its_environment(tmp_path: Path) -> None:
    world = AgentGymServer(environment="textcraft", url="http://127.0.0.1:1")
    path = written(tmp_path, [record("textcraft_31"), record("maze_1")])
    assert [found.task for found in begin(path, world, "agentgym")] == ["31"]


def test_a_client_that_the_file_knows_takes_its_own_records(tmp_path: Path) -> None:
    path = written(tmp_path, [record("maze_1", client="east"), record("maze_2", client="west"), record("maze_3")])
    chosen = {name: Recorded(path).size(name, "maze", Maze()) for name in ("east", "west", "elsewhere")}
    assert chosen == {"east": 2, "west": 2, "elsewhere": 3}


def test_a_second_world_of_one_name_takes_its_own_records_or_else_those_of_the_name(tmp_path: Path) -> None:
    path = written(tmp_path, [record("maze_1"), record("maze#2_2")])
    assert [found.task for found in begin(path, label="maze")] == ["1"]
    assert [found.task for found in begin(path, label="maze#2")] == ["2"]
    assert [found.task for found in begin(path, label="maze#3")] == ["1"]


def test_several_records_of_one_task_are_attempts_and_equal_ones_are_kept_once(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    other = record("maze_3", human("A wall."), gpt("Thought: right.\nAction: move right"))
    path = written(tmp_path, [record("maze_3"), other, record("maze_3"), record("maze_4")])
    assert [(found.task, found.attempt) for found in begin(path)] == [("3", 0), ("3", 1), ("3", 2), ("4", 0)]
    result = fedse.run(table_experiment(start={"name": "recorded", "path": str(path)}, rounds=1), tmp_path)
    held = [item for item in read_file(result.folder / "clients/east/buffer.sqlite") if item.round == 0]
    assert sorted((item.task, item.steps[0].action) for item in held) == [
        ("3", "move right"),
        ("3", "move up"),
        ("4", "move up"),
    ]


BROKEN = [
    (7, "it is not an object"),
    ({"item_id": "maze_1"}, "it has no 'conversations'"),
    ({"steps": [], "token_ids": [], "task": "1"}, "fedse's own form; `fedse export RUN NAME.json`"),
    (record(conversations={}), "its 'conversations' is not a list"),
    (record(conversations=[]), "its conversation is empty"),
    (record(conversations=["hello"]), "message 1 is not an object"),
    (record(conversations=[gpt("hello")]), "message 1 must be from 'human'"),
    (record("maze_1", gpt(REPLY)), "message 3 must be from 'human': human and gpt take turns"),
    (record("maze_1", human("a"), human("b")), "message 4 must be from 'gpt'"),
    (record("maze_1", human("a"), gpt(REPLY, **{"from": "system"})), "message 4 must be from 'gpt'"),
    (record("maze_1", human("a"), {"value": REPLY}), "message 4 must be from 'gpt'"),
    (record("maze_1", human(None), gpt(REPLY)), "the 'value' of message 3 is not a text"),
    (record("maze_1", human("a"), gpt(["x"])), "the 'value' of message 4 is not a text"),
    (record("maze_1", human("\ud800"), gpt(REPLY)), "the 'value' of message 3 is not a text"),
    (record("maze_1", human("a"), gpt(REPLY, "yes")), "the 'loss' of message 4 must be true, false or null"),
    (record("maze_1", human("a"), gpt(REPLY, 1)), "the 'loss' of message 4 must be true, false or null"),
    (record("maze_1", human("a", loss=True), gpt(REPLY)), "message 3 is from 'human' and cannot have loss true"),
    (record("maze_1", human("a")), "it holds no reply to an observation"),
    (record(conversations=[human("r"), gpt("OK")]), "it holds no reply to an observation"),
    (
        record(conversations=[human("r"), gpt(REPLY), human("a"), gpt(REPLY)]),
        "message 2 must be the agent's acceptance",
    ),
    (record(conversations=[human("r"), gpt("OK"), human("a"), gpt(REPLY)]), "message 2 must be the agent's acceptance"),
    (record("maze_1", human("a"), gpt("move up")), "message 4 needs one line 'Action: ...'"),
    (record("maze_1", human("a"), gpt("")), "message 4 needs one line 'Action: ...'"),
    (record("maze_1", human("a"), gpt("Action: x\nAction: y")), "message 4 needs one line 'Action: ...'"),
    (record("maze_1", human("a"), gpt(REPLY, False)), "all of its replies have loss false"),
    ({"conversations": record()["conversations"]}, "it has no 'item_id'"),
    (record(12), "its 'item_id' must be the name of a world, '_' and a task"),  # type: ignore[arg-type]
    (record("maze"), "its 'item_id' must be the name of a world, '_' and a task"),
    (record("_3"), "its 'item_id' must be the name of a world, '_' and a task"),
    (record(reward=0), "its 'reward' is not above 0"),
    (record(reward=float("nan")), "its 'reward' is not above 0"),
    (record(reward=float("inf")), "no reward at all"),
    (record(reward=10**400), "no reward at all"),
    (record(reward="1"), "its 'reward' is not a number"),
    (record(client=3), "its 'client' is not a text"),
]


@pytest.mark.parametrize(("bad", "said"), BROKEN, ids=range(len(BROKEN)))
def test_a_bad_record_is_refused_with_its_line_or_skipped(tmp_path: Path, bad: Any, said: str) -> None:
    path = written(tmp_path, [record("maze_1"), bad, record("maze_2")])
    line = 2 + len(json.dumps(record("maze_1"), indent=4).splitlines())
    with pytest.raises(BadInput) as caught:
        begin(path)
    assert str(caught.value).startswith(f"start: {path}, line {line}, record 2: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert [found.task for found in begin(path, bad_records="skip")] == ["1", "2"]
    (warning,) = Recorded(path, "skip").check("site", "maze", Maze(), TABLE)
    (skipped,) = warning.details["skipped"]
    assert (warning.details["records"], skipped["line"], skipped["number"]) == (1, line, 2)
    assert f"1 of 3 records were skipped: line {line}, record 2 (" in warning.message and said in warning.message


def test_lines_that_are_not_json_are_skipped_one_by_one(tmp_path: Path) -> None:
    lines = [json.dumps(record("maze_1")), '{"conversations": [', "", json.dumps(record("maze_2")), "end", "{}"]
    path = written(tmp_path, "\n".join(lines), "shown.jsonl")
    assert [found.task for found in begin(path, bad_records="skip")] == ["1", "2"]
    with pytest.raises(BadInput) as caught:
        begin(path)
    told = str(caught.value).splitlines()
    places = [line.split(": ")[1].removeprefix(f"{path}, ") for line in told]
    assert places == ["line 2, record 2", "line 5, record 4", "line 6, record 5"]
    assert "it is not JSON (Expecting value)" in told[1]


def test_bad_records_of_an_array_on_one_line_are_told_apart(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([record("maze_1"), 7, record("maze_2"), record("maze")]))
    with pytest.raises(BadInput) as caught:
        begin(path)
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        f"{path}, line 1, record {number}" for number in (2, 4)
    ]
    (warning,) = Recorded(path, "skip").check("site", "maze", Maze(), TABLE)
    assert [item["number"] for item in warning.details["skipped"]] == [2, 4]


def test_many_problems_are_counted_rather_than_all_printed(tmp_path: Path) -> None:
    path = written(tmp_path, [record("maze_1"), *[7] * 25])
    with pytest.raises(BadInput, match="15 more records cannot be used") as caught:
        begin(path)
    assert len(str(caught.value).splitlines()) == 11
    (warning,) = Recorded(path, "skip").check("site", "maze", Maze(), TABLE)
    assert len(warning.details["skipped"]) == 25 and "and 15 more" in warning.message


@pytest.mark.parametrize("bad_records", ["refuse", "skip"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no records"),
        ("[]", "holds no records"),
        ("  \n", "holds no records"),
        ('[{"a": 1},\n]', "line 2: the file is not a JSON array (Expecting value"),
        ('[{"a": 1}\n{"a": 2}]', "line 2: the file is not a JSON array (',' or ']' is missing)"),
        ('[{"a": 1},\n{"a": 2}', "line 2: the file is not a JSON array (',' or ']' is missing)"),
        ('[{"a": 1}]\n\nmore', "line 3: the file is not a JSON array (something follows its end)"),
        ('[{"a":\n\n oops}]', "line 3: the file is not a JSON array"),
        ("[" * 100_000, "line 1: the file is not a JSON array"),
        ("[" + "9" * 10_000 + "]", "line 1: the file is not a JSON array"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_list_of_records_is_refused(
    tmp_path: Path, content: str, said: str, bad_records: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInput) as caught:
        begin(path, bad_records=bad_records)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, [record("maze_3")])
    assert [found.task for found in begin(Path("~/shown.json"))] == ["3"]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent.json", tmp_path, tmp_path / "binary.json"):
        with pytest.raises(BadInput, match=r"start: cannot read .*"):
            begin(path)


def test_a_world_without_records_is_named_with_what_the_file_holds(tmp_path: Path) -> None:
    path = written(tmp_path, [record("wordle_1"), record("lmrlgym_maze_1")])
    with pytest.raises(
        BadInput, match=r"no usable record for world 'textcraft' of client 'site'.*maze, wordle"
    ) as caught:
        begin(path, label="textcraft", world=AgentGymServer(environment="textcraft", url="http://127.0.0.1:1"))
    assert "'textcraft_'" in str(caught.value)


def test_records_of_held_out_tasks_are_warned_of(tmp_path: Path) -> None:
    world = Maze()
    ids = [world.tasks("train")[0].id, world.tasks("test")[0].id, world.tasks("validation")[0].id, "elsewhere"]
    path = written(tmp_path, [record(f"maze_{task}") for task in ids])
    (warning,) = Recorded(path).check("site", "maze", world, TABLE)
    assert (warning.kind, warning.details["records"]) == ("held_out_tasks", 2)
    assert "2 of 4 records" in warning.message
    assert Recorded(written(tmp_path, [record(f"maze_{ids[0]}")])).check("site", "maze", world, TABLE) == []


def test_records_that_leave_the_model_no_room_for_a_reply_are_refused(tmp_path: Path) -> None:
    class Short(Table):
        context = 100

    short: Any = Short()
    fitting = record("maze_2")
    long = record("maze_1", human("wall " * 30), gpt(REPLY))
    late = record("maze_3", human("A wall."), gpt("Let me think. " * 5, False), human("A wall."), gpt(REPLY))
    for unusable in ([long], [late], [late, long]):
        with pytest.raises(BadInput, match=r"takes 1\d\d tokens or more for world 'maze', and .* context holds 100"):
            Recorded(written(tmp_path, unusable)).check("site", "maze", Maze(), short)
    (warning,) = Recorded(written(tmp_path, [long, fitting, late])).check("site", "maze", Maze(), short)
    assert (warning.kind, warning.details["records"]) == ("records_too_long", 2)
    assert "of 2 of 3 records" in warning.message
    learned = Recorded(written(tmp_path, [long, fitting, late])).trajectories("site", "maze", Maze(), short.chat, 0)
    assert [any(item.train_mask[: short.context]) for item in learned] == [False, True, False]
    assert Recorded(written(tmp_path, [fitting])).check("site", "maze", Maze(), short) == []


def test_the_file_is_read_once_for_all_clients(table_experiment: Callable[..., Experiment], tmp_path: Path) -> None:
    path = written(tmp_path, [record("maze_3")])
    experiment = table_experiment(start=str(path))
    parts = build_components(experiment)
    assert parts.start.check("east", "maze", Maze(), parts.model) == []  # type: ignore[attr-defined]
    path.unlink()
    clients = assembled(experiment, tmp_path / "run", parts).clients
    for client in clients:
        client.experience.begin()
    assert [len(client.experience.buffer) for client in clients] == [1, 1]


@pytest.mark.parametrize("content", [[7], [record("wordle_1")], "nonsense"])
def test_a_run_refuses_before_anything_is_written(
    table_experiment: Callable[..., Experiment], tmp_path: Path, content: Any
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInput, match="start: "):
        fedse.run(table_experiment(start=str(path)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_that_has_begun_does_not_need_the_file_any_more(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    path = written(tmp_path, [record("maze_3")])
    fedse.run(table_experiment(start=str(path), rounds=1), tmp_path)
    path.unlink()
    assert fedse.run(table_experiment(start=str(path), rounds=2), tmp_path).test["round"] == 2


def test_skipped_records_are_told_to_trackers_and_kept_with_the_run(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    path = written(tmp_path, [record("maze_3"), 7])
    start = {"name": "recorded", "path": str(path), "bad_records": "skip"}
    result = fedse.run(table_experiment(start=start, rounds=1), tmp_path)
    events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
    (warning,) = [event for event in events if event.get("kind") == "records_skipped"]
    assert [item["reason"] for item in warning["skipped"]] == ["it is not an object"]
    held = read_file(result.folder / "clients/west/buffer.sqlite")
    assert [item.task for item in held if item.round == 0] == ["3"]


def test_a_run_does_not_go_on_with_a_changed_file_before_its_first_round_is_complete(
    table_experiment: Callable[..., Experiment], tmp_path: Path
) -> None:
    path = written(tmp_path, [record("maze_3")])
    asked = table_experiment(start=str(path), rounds=1)
    with prepare(asked, tmp_path) as federation:
        federation.clients[0].experience.begin()
    written(tmp_path, [record("maze_3"), record("maze_4")])
    with pytest.raises(RunConflict, match="begun with another content of the file that `start` names") as refused:
        fedse.run(asked, tmp_path)
    assert "\n" not in str(refused.value)
    written(tmp_path, [record("maze_3")])
    fedse.run(asked, tmp_path)
    written(tmp_path, [record("maze_5")])
    assert fedse.run(table_experiment(start=str(path), rounds=2), tmp_path).test["round"] == 2
