"""Trajectories for other tools, and the journal: what is written reads back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedse.errors import BadInput, CannotWrite
from fedse.experience.export import export
from fedse.experience.journal import Journal
from fedse.experience.records import FORMAT, from_record, to_record
from fedse.types import Outcome, Purpose, Step, Trajectory

PLAYED = [
    Trajectory(
        client="site",
        world="maze",
        task=f"t{number}",
        purpose=Purpose.EXPLORE,
        round=number,
        attempt=1,
        adapter="digest",
        steps=tuple(Step("seen\r\nä\u2028", "Thought: 漢\nAction: go", "漢", "go", True) for _ in range(number)),
        closing='"quoted"',
        outcome=outcome,
        score=0.1 + number,
        token_ids=tuple(range(number * 3)),
        train_mask=tuple(index % 3 == 0 for index in range(number * 3)),
        error="KeyError" if outcome is Outcome.ERROR else "",
        detail="boom" if outcome is Outcome.ERROR else "",
    )
    for number, outcome in enumerate(Outcome)
]
DRAWN = [replace(PLAYED[1], log_probs=(-0.693147,)), replace(PLAYED[2], log_probs=(0.0, -12.5), reshaped=True)]


def test_a_record_is_plain_json_with_a_format_and_reads_back() -> None:
    for trajectory in PLAYED:
        record = to_record(trajectory)
        assert record["format"] == 3 and not any("hint" in step for step in record["steps"])
        assert from_record(json.loads(json.dumps(record))) == trajectory


def test_log_probabilities_are_in_a_record_where_they_are_known(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export([*PLAYED, *DRAWN], tmp_path / "out.jsonl")
    export([*PLAYED, *DRAWN], tmp_path / "out.parquet")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().split("\n") if line]
    assert [line["format"] for line in lines] == [3, 3, 3, FORMAT, FORMAT]
    for records in (lines, parquet.read_table(tmp_path / "out.parquet").to_pylist()):
        read = [from_record(record) for record in records]
        assert [(item.log_probs, item.reshaped) for item in read] == [
            *[((), False)] * 3,
            ((-0.693147,), False),
            ((0.0, -12.5), True),
        ]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"log_probs": [-1.0]}, "as many log-probabilities"),
        ({"log_probs": [-1.0, "x"]}, "no number"),
        ({"log_probs": [-1.0, float("-inf")]}, "no number"),
        ({"reshaped": "no"}, "not told"),
    ],
)
def test_log_probabilities_that_do_not_fit_are_refused(damage: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_record({**to_record(DRAWN[1]), **damage})


def test_a_record_has_a_newer_format_where_there_are_hints() -> None:
    steps = (PLAYED[2].steps[0], replace(PLAYED[2].steps[1], hint="Turn left."))
    record = to_record(replace(PLAYED[2], steps=steps))
    assert record["format"] == 4 and [step.get("hint") for step in record["steps"]] == [None, "Turn left."]
    assert from_record(json.loads(json.dumps(record))).steps == steps


def test_a_record_of_the_first_format_has_no_rules_and_was_learned_from_as_a_whole() -> None:
    record = to_record(PLAYED[1])
    old = {key: value for key, value in record.items() if key != "rules"}
    old["steps"] = [{key: value for key, value in step.items() if key != "learned"} for step in record["steps"]]
    read = from_record({**old, "format": 1})
    assert read.rules == "" and all(step.learned for step in read.steps)
    assert replace(read, rules=PLAYED[1].rules) == PLAYED[1]


def test_a_record_of_a_newer_format_is_one_clear_sentence(tmp_path: Path) -> None:
    record = {**to_record(PLAYED[1]), "format": FORMAT + 1, "mood": "good"}
    (tmp_path / "0001.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(BadInput, match=f"has format {FORMAT + 1}, this fedse knows up to {FORMAT}: use the newer"):
        list(Journal(tmp_path).read("0001"))


def test_json_lines_read_back(tmp_path: Path) -> None:
    export(PLAYED, tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    assert [from_record(json.loads(line)) for line in lines] == PLAYED
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_parquet_reads_back_with_one_row_for_each_trajectory(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(PLAYED, tmp_path / "out.parquet")
    rows = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [from_record(row) for row in rows] == PLAYED
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_nothing_is_exported_as_a_file_without_rows(tmp_path: Path, ending: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"out.{ending}"
    export([], path)
    assert (path.read_bytes() == b"") if ending == "jsonl" else (parquet.read_table(path).num_rows == 0)


def played(
    *steps: Step, outcome: Outcome = Outcome.SUCCESS, closing: str = "out", rules: str = "Get out."
) -> Trajectory:
    return replace(PLAYED[0], steps=steps, outcome=outcome, closing=closing, rules=rules)


def test_conversations_have_agentgyms_layout(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    first = Step("a\u2028\nwall", "Thought: 漢\nAction: go", "漢", "go", True)
    second = Step("still", "er", "", "", False)
    third = Step("a door", "Thought: x\nAction: open", "x", "open", True, learned=False)
    assert export([played(first, second, third), played(first, closing="")], path) == 2
    one, two = json.loads(path.read_text(encoding="utf-8"))
    assert one["item_id"] == two["item_id"] == "maze_t0"
    assert [(item["from"], item["loss"], item["value"]) for item in one["conversations"]] == [
        ("human", None, "Get out."),
        ("gpt", False, "OK."),
        ("human", None, "a\u2028\nwall"),
        ("gpt", True, "Thought: 漢\nAction: go"),
        ("human", None, "still"),
        ("gpt", False, "er"),
        ("human", None, "a door"),
        ("gpt", False, "Thought: x\nAction: open"),
        ("human", None, "out"),
    ]
    assert [item["from"] for item in two["conversations"]] == ["human", "gpt", "human", "gpt"]
    assert [item.name for item in tmp_path.iterdir()] == ["out.json"]


def test_conversations_are_written_of_successes_only(tmp_path: Path) -> None:
    step = Step("seen", "Action: go", "", "go", True)
    assert export([played(step), played(step, outcome=Outcome.FAILURE)], tmp_path / "out.json") == 1
    assert len(json.loads((tmp_path / "out.json").read_text())) == 1
    assert export([], tmp_path / "none.json") == 0
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_a_trajectory_without_rules_is_no_conversation(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"task 't0' of client 'site' was stored without the rules"):
        export([played(rules="")], tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out.csv", "out", "out.jsonl.gz"])
def test_another_ending_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"must end in \.json, \.jsonl, \.parquet or \.atif"):
        export(PLAYED, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_path_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path, ending: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="choose another folder"):
        export(PLAYED, tmp_path / "file" / f"out.{ending}")


def test_an_export_that_breaks_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    with pytest.raises(AttributeError):
        export([PLAYED[0], "no trajectory"], path)  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.jsonl"]


def test_the_journal_reads_back_and_a_repeated_round_overwrites(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "episodes")
    journal.write("0001", PLAYED)
    journal.write("0001", PLAYED[:2])
    journal.write("0002", [])
    assert journal.names() == ["0001", "0002"]
    assert list(journal.read("0001")) == PLAYED[:2]
    assert list(journal.read("0002")) == list(journal.read("absent")) == []
