"""Invariant 4: what a round depends on is what was written, or the run says so: it never goes on from a wrong state."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import fedse
from fedse.cli import app
from fedse.errors import BadInput, BufferUnusable, FedseError, RunConflict
from fedse.events import Event, Warned
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run, prepare
from fedse.runs.folder import RunFolder
from older_run import as_of_an_older_fedse
from short_maze import SHORT_MAZE

EAST = "clients/east/buffer.sqlite"
Damage = Callable[[Path], None]


def experiment(rounds: int, **changes: Any) -> Experiment:
    return Experiment(
        **{
            "name": "table",
            "rounds": rounds,
            "model": {"name": "table", "rows": 512},
            "policy": "table",
            "learner": "table",
            "aggregator": "fedavgm",
            "filter": "none",
            "clients": {
                "east": {"worlds": [{**SHORT_MAZE, "turn_limit": 8}]},
                "west": {"worlds": [{**SHORT_MAZE, "turn_limit": 6}]},
            },
            "start": {"name": "demonstrations", "tasks": 3},
            "exploration": {"tasks": 5, "attempts": 2},
            "evaluation": {"tasks": 2, "test_tasks": 2},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds, and one of three that nothing happened to."""
    folder = tmp_path_factory.mktemp("made")
    fedse.run(experiment(2), folder / "two")
    shutil.copytree(folder / "two", folder / "whole")
    fedse.run(experiment(3), folder / "whole")
    return folder


@pytest.fixture
def two(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "two", tmp_path / "runs")
    return tmp_path / "runs" / "table"


class Heard:
    """A tracker that keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def record(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.warnings.append(event.message)


def go_on(folder: Path, **changes: Any) -> tuple[str, list[str]]:
    heard = Heard()
    result = fedse.run(experiment(3, **changes), folder.parent, trackers=[heard])
    return result.adapter.digest(), heard.warnings


def digest(folder: Path, number: int) -> str:
    return RunFolder.existing(folder).digest_of(number)


def contents(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*.*")
        if path.is_file() and not path.name.endswith((".lock", "-shm", "-wal"))
    }


def sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def flip(path: Path, at: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def flip_token(folder: Path, round: int) -> None:
    connection = sqlite3.connect(folder / EAST)
    (ids,) = connection.execute("SELECT token_ids FROM trajectories WHERE round = ?", (round,)).fetchone()
    connection.execute(
        "UPDATE trajectories SET token_ids = ? WHERE round = ? AND token_ids = ?",
        (bytes([ids[0] ^ 1]) + ids[1:], round, ids),
    )
    connection.commit()
    connection.close()


def alpha(folder: Path) -> None:
    path = folder / "rounds/0002/adapter/adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lora_alpha": 160}))


def other_memory(folder: Path) -> None:
    path = folder / "rounds/0002/server/memory.safetensors"
    save_file({name: tensor + np.float32(1) for name, tensor in load_file(path).items()}, path)


FROM_ROUND_1: Mapping[str, Damage] = {
    "a bit of a row's token ids": lambda folder: flip_token(folder, 2),
    "rows of the last round deleted": lambda folder: sql(folder / EAST, "DELETE FROM trajectories WHERE round = 2"),
    "a row's text edited": lambda folder: sql(
        folder / EAST, "UPDATE trajectories SET record = replace(record, 'go', 'No') WHERE round = 2"
    ),
    "an attempt edited": lambda folder: sql(folder / EAST, "UPDATE attempts SET score = 0.5 WHERE round = 2"),
    "lora_alpha 16 -> 160": alpha,
    "the server's memory flipped": lambda folder: flip(folder / "rounds/0002/server/memory.safetensors"),
    "another memory": other_memory,
    "the server's memory cut": lambda folder: (folder / "rounds/0002/server/memory.safetensors").write_bytes(b"abc"),
    "the server's memory removed": lambda folder: shutil.rmtree(folder / "rounds/0002/server"),
    "the adapter flipped": lambda folder: flip(folder / "rounds/0002/adapter/adapter_model.safetensors"),
    "a list as adapter config": lambda folder: (folder / "rounds/0002/adapter/adapter_config.json").write_text("[]"),
    "the round's folder removed": lambda folder: shutil.rmtree(folder / "rounds/0002"),
    "its record cut": lambda folder: (folder / "rounds/0002/digests.json").write_text("{"),
}


@pytest.mark.parametrize("what", FROM_ROUND_1)
def test_a_damaged_round_is_done_again_and_told(what: str, two: Path, made: Path) -> None:
    FROM_ROUND_1[what](two)
    reached, warnings = go_on(two)
    assert reached == digest(made / "whole/table", 3)
    (told,) = warnings
    assert "the run resumes from round 1, the last one that is whole, and does round 2 again" in told
    assert (two / "set_aside/1").is_dir()
    for client in ("east", "west"):
        path = Path("table/clients") / client / "buffer.sqlite"
        assert read_file(two.parent / path) == read_file(made / "whole" / path)
    assert go_on(two) == (reached, [])


def test_what_is_set_aside_is_not_lost(two: Path) -> None:
    flip_token(two, 2)
    go_on(two)
    assert (two / "set_aside/1/rounds/0002/adapter/adapter_model.safetensors").is_file()
    with pytest.raises(BufferUnusable, match="do not fit the hash"):
        read_file(two / "set_aside/1/clients/east/damaged-buffer.sqlite")
    assert not list((two / "clients").rglob("damaged-*"))


REFUSED: Mapping[str, Damage] = {
    "buffer removed": lambda folder: (folder / EAST).unlink(),
    "buffer emptied": lambda folder: (folder / EAST).write_bytes(b""),
    "buffer without rows": lambda folder: sql(folder / EAST, "DELETE FROM trajectories", "DELETE FROM attempts"),
    "what it began with edited": lambda folder: flip_token(folder, 0),
    "buffer cut": lambda folder: (folder / EAST).write_bytes((folder / EAST).read_bytes()[:5000]),
    "buffer of the other client": lambda folder: shutil.copy(folder / "clients/west/buffer.sqlite", folder / EAST),
    "a row that nobody found": lambda folder: sql(
        folder / EAST,
        "INSERT INTO trajectories SELECT 1, world, task || 'x', attempt, purpose, adapter, outcome, score, content, record,"
        " token_ids, train_mask FROM trajectories LIMIT 1",
    ),
    "a row between two rounds": lambda folder: sql(
        folder / EAST,
        "UPDATE trajectories SET round = 0.5 WHERE (round, world, task, attempt) ="
        " (SELECT round, world, task, attempt FROM trajectories WHERE round = 2 LIMIT 1)",
    ),
    "another experiment in the folder": lambda folder: (folder / "experiment.yaml").write_text(
        (folder / "experiment.yaml").read_text().replace("tasks: 5", "tasks: 6")
    ),
    "a manifest that was edited": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace('"fedse": "', '"fedse": "9')
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_only_the_beginning_is_left_the_run_is_refused_and_left_as_it_is(what: str, two: Path) -> None:
    REFUSED[what](two)
    before = contents(two)
    with pytest.raises(RunConflict, match=r"restore it|holds a run of another experiment"):
        go_on(two)
    assert contents(two) == before


def test_a_run_can_be_evaluated_only_if_it_is_whole(two: Path) -> None:
    flip_token(two, 1)
    with pytest.raises(RunConflict, match="is not what was written"):
        open_run(two)
    RunFolder.existing(two).lock()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"round": 1}', '{"evaluation": NaN}'])
@pytest.mark.parametrize("old", [False, True])
def test_reports_and_evaluations_are_noticed_before_the_work(content: str, old: bool, two: Path, made: Path) -> None:
    if old:
        as_of_an_older_fedse(two)
    for name in ("rounds/0001/report.json", "evaluations/validation-0002.json"):
        (two / name).write_text(content)
    with prepare(experiment(3), two.parent):
        pass
    assert (two / "set_aside/1/rounds/0001/report.json").read_text() == content
    assert (two / "set_aside/1/evaluations/validation-0002.json").read_text() == content
    reached, _ = go_on(two)
    assert reached == digest(made / "whole/table", 3)


def test_numbers_of_a_report_or_an_evaluation_cannot_be_edited(two: Path) -> None:
    path = two / "evaluations/test-0002.json"
    path.write_text(path.read_text().replace('"episodes": 2', '"episodes": 3'))
    with pytest.raises(RunConflict, match="not the file that was written"):
        RunFolder.existing(two).evaluation("test", 2)
    truth = fedse.run(experiment(2), two.parent).test
    assert truth is not None and truth["episodes"] == 4
    report = two / "rounds/0001/report.json"
    report.write_text(report.read_text().replace("1", "2", 1))
    with pytest.raises(RunConflict, match="not the file that was written"):
        RunFolder.existing(two).report(1)


def test_a_run_of_an_older_fedse_goes_on_says_what_it_cannot_check_and_is_safe_from_then_on(
    two: Path, made: Path
) -> None:
    as_of_an_older_fedse(two)
    reached, warnings = go_on(two)
    assert reached == digest(made / "whole/table", 3)
    assert len(warnings) == 1 and "stored by an older fedse, which noted no digests" in warnings[0]
    flip_token(two, 1)
    with pytest.raises(RunConflict, match="no earlier round"):
        go_on(two)


@pytest.mark.parametrize(
    "edit",
    [
        {"rounds": {"x": "d"}},
        {"rounds": {"-1": "d"}},
        {"rounds": {"²": "d"}},
        {"rounds": {"1": 7}},
        {"rounds": []},
        {"worlds": []},
        {"worlds": {"east/maze": 1}},
        {"experiment": 1},
        {"start": {}},
        {"format": 0},
        {"format": True},
        {"format": 10**400},
    ],
)
def test_odd_keys_of_a_manifest_are_one_sentence(edit: dict[str, Any], two: Path) -> None:
    as_of_an_older_fedse(two)
    path = two / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    for use in (lambda: go_on(two), lambda: open_run(two), lambda: RunFolder.existing(two).last_round()):
        with pytest.raises(BadInput, match=r"manifest.json is damaged|written by a newer fedse"):
            use()


def test_a_log_of_events_that_is_a_folder_stops_nothing(two: Path, made: Path) -> None:
    (two / "events.jsonl").unlink()
    (two / "events.jsonl").mkdir()
    assert go_on(two) == (digest(made / "whole/table", 3), [])


def test_what_a_client_keeps_for_itself_is_checked(tmp_path: Path) -> None:
    """Own adapters, private tensors and notebooks have digests as the buffer has."""
    alone = {"method": "local_se", "aggregator": "mean"}
    fedse.run(experiment(2, **alone), tmp_path)
    config = tmp_path / "table/clients/west/adapters/0002/adapter_config.json"
    config.write_text('{"r": 1}')
    with pytest.raises(FedseError, match="is not what was written"):
        open_run(tmp_path / "table")
    _, warnings = go_on(tmp_path / "table", **alone)
    assert "resumes from round 1" in warnings[0]


def test_a_kill_between_two_writes_of_a_new_experiment_leaves_a_run_that_goes_on(two: Path, made: Path) -> None:
    longer = experiment(3)
    folder = RunFolder.existing(two)
    before = folder.experiment()
    folder.replace_experiment(longer.to_yaml(), longer.digest())
    (two / "experiment.yaml").write_text(before)
    assert go_on(two) == (digest(made / "whole/table", 3), [])


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_round_that_was_not_stored_is_done_again_without_a_word(
    at: int, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunFolder.save_round

    def stop(self: RunFolder, number: int, *more: Any, **named: Any) -> None:
        if number == at:
            raise Interrupted
        store(self, number, *more, **named)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(RunFolder, "save_round", stop)
        fedse.run(experiment(3), tmp_path)
    assert go_on(tmp_path / "table") == (digest(made / "whole/table", 3), [])


START = """
import sys
import fedse
from fedse.errors import FedseError
try:
    print(fedse.run(fedse.load_experiment(sys.argv[1]), sys.argv[2]).adapter.digest())
except FedseError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "repeats", [pytest.param(1, marks=pytest.mark.slow), pytest.param(25, marks=pytest.mark.torture)]
)
@pytest.mark.timeout(900)
def test_of_four_starts_at_once_one_runs_and_three_say_so(repeats: int, made: Path, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(experiment(3).to_yaml())
    for number in range(repeats):
        command = [sys.executable, "-c", START, str(file), str(tmp_path / str(number))]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
        ]
        said = [process.communicate(timeout=300) for process in processes]
        assert [told for _, told in said if told] == []
        reached = [line for line, _ in said if "in use by another process" not in line]
        # One that began when the first was done finds the finished run.
        assert set(reached) == {digest(made / "whole/table", 3) + "\n"}


def test_a_start_that_cannot_work_leaves_nothing_behind(tmp_path: Path) -> None:
    wrong = experiment(1, start={"name": "recorded", "path": str(tmp_path / "absent.json")})
    with pytest.raises(BadInput):
        fedse.run(wrong, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_is_held_before_anything_is_looked_at(two: Path) -> None:
    holder = RunFolder.existing(two)
    holder.lock()
    (two / "experiment.yaml").write_text("name: [")
    with pytest.raises(RunConflict, match="in use by another process"):
        go_on(two)


def test_a_buffer_on_a_medium_that_cannot_be_written_is_read(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite makes files beside one with a write-ahead log, and says that it cannot open the file where it may not."""
    expected = read_file(two / EAST)
    connect = sqlite3.connect

    def on_such_a_medium(place: Any, **named: Any) -> Any:
        return Unopened() if str(two) in str(place) else connect(place, **named)

    monkeypatch.setattr("fedse.experience.buffer_file.sqlite3.connect", on_such_a_medium)
    assert read_file(two / EAST) == expected


class Unopened:
    def execute(self, _: str) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("command", "name", "content"),
    [
        (["show", "{run}"], "clients/east/episodes/0002.jsonl", '{"format": 3, "client'),
        (["show", "{run}"], "rounds/0001/report.json", ""),
        (["show", "{run}", "--split", "test"], "clients/east/episodes/test-0002.jsonl", "[]\n"),
        (["compare", "{run}"], "evaluations/test-0002.json", '{"adapter": 1}'),
        (["export", "{run}", "{out}"], "rounds/0002/adapter/adapter_config.json", "[]"),
        (["export", "{run}", "{out}"], "rounds/0002/adapter/adapter_config.json", '{"lora_alpha": 160}'),
        (["export", "{run}", "{out}.jsonl"], EAST, "no database"),
        (["runs", "pack", "{run}", "{out}"], EAST, "no database"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_commands_that_only_look_refuse_in_one_sentence(
    command: list[str], name: str, content: str, old: bool, two: Path, tmp_path: Path
) -> None:
    if old:
        as_of_an_older_fedse(two)
    (two / name).write_text(content)
    words = [word.format(run=two, out=tmp_path / "out") for word in command]
    result = CliRunner().invoke(app, words)
    if old and "lora_alpha" in content:
        assert result.exit_code == 0  # Nothing is known of it.
        return
    assert isinstance(result.exception, SystemExit) and result.exit_code == 2, result.exception
    assert (
        "damaged" in result.output or "not the file that was written" in result.output or "is missing" in result.output
    )


def test_show_says_what_is_missing(two: Path) -> None:
    gone = [two / "rounds/0001/report.json", two / "evaluations/validation-0002.json"]
    for path in gone:
        path.unlink()
    result = CliRunner().invoke(app, ["show", str(two)])
    assert result.exit_code == 0
    for path in gone:
        assert f"{path} is missing: the tables are without it." in result.output
    result = CliRunner().invoke(app, ["compare", str(two)])
    assert result.exit_code == 2 and "the report of round 1 is missing" in result.output


def test_a_run_without_its_manifest_is_not_left_out_of_the_list_without_a_word(two: Path) -> None:
    (two / "manifest.json").unlink()
    listed = CliRunner().invoke(app, ["runs", "--runs", str(two.parent)])
    assert listed.exit_code == 0 and "manifest.json is missing" in " ".join(listed.output.split())
