"""The buffer: a set that grows, belongs to one client, and refuses what it cannot read without touching it."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedse.errors import BufferUnusable, CannotWrite
from fedse.experience.buffer import SCHEMA, Buffer, BufferOptions, read_file
from fedse.types import Outcome, Purpose, Step, Trajectory


def _trajectory(
    round: int = 1, task: str = "t", attempt: int = 0, ids: tuple[int, ...] = (1, 2, 3), **rest: object
) -> Trajectory:
    made = Trajectory(
        client="site",
        world="maze",
        task=task,
        purpose=Purpose.EXPLORE,
        round=round,
        attempt=attempt,
        adapter=f"digest{round}",
        steps=(Step("seen: ä 漢\n", "Thought: é\nAction: go", "é", "go", True), Step("b", "r", "", "", False)),
        closing="the end\u2028",
        outcome=Outcome.SUCCESS,
        score=0.1,
        token_ids=ids,
        train_mask=tuple(index % 2 == 1 for index in range(len(ids))),
    )
    return replace(made, **rest)  # type: ignore[arg-type]


def _open(folder: Path, **options: object) -> Buffer:
    return Buffer(folder / "buffer.sqlite", "site", "print", BufferOptions(**options))  # type: ignore[arg-type]


def _bytes(folder: Path) -> dict[str, bytes]:
    """All files with content. SQLite's index of its log holds locks only, and an empty log nothing."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}
    return {name: content for name, content in files.items() if content}


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_a_trajectory_comes_back_exactly_as_it_went_in(tmp_path: Path, size: int) -> None:
    kept = _trajectory(ids=tuple(range(2**31 - size, 2**31)))
    _open(tmp_path).remember(1, [kept])
    assert _open(tmp_path).read() == [kept]
    assert read_file(tmp_path / "buffer.sqlite") == [kept]


def test_log_probabilities_come_back_too_and_make_no_other_trajectory(tmp_path: Path) -> None:
    kept = _trajectory(1, ids=(1, 2, 3, 4), log_probs=(-0.123456, -7.0), reshaped=True)
    assert _open(tmp_path).remember(1, [kept]) == 1
    assert _open(tmp_path).remember(2, [_trajectory(2, ids=(1, 2, 3, 4), log_probs=(-0.2, -6.0))]) == 0
    for (found,) in (_open(tmp_path).read(), read_file(tmp_path / "buffer.sqlite")):
        assert found == kept and (found.log_probs, found.reshaped) == (kept.log_probs, True)


def test_where_it_came_from_stands_in_columns(tmp_path: Path) -> None:
    _open(tmp_path).remember(3, [_trajectory(3, "k", 2), _trajectory(3, "l", purpose=Purpose.DEMONSTRATE, adapter="")])
    columns = "round, world, task, attempt, purpose, adapter, outcome, score"
    rows = sqlite3.connect(tmp_path / "buffer.sqlite").execute(f"SELECT {columns} FROM trajectories ORDER BY task")
    assert rows.fetchall() == [
        (3, "maze", "k", 2, "explore", "digest3", "success", 0.1),
        (3, "maze", "l", 0, "demonstrate", "", "success", 0.1),
    ]


def test_a_repeated_round_replaces_what_it_had_added_before(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    buffer.remember(0, [_trajectory(0, "demo")])
    buffer.remember(1, [_trajectory(1, "x", ids=(1,)), _trajectory(1, "y", ids=(2,))])
    buffer.remember(2, [_trajectory(2, "z", ids=(3,))])
    assert buffer.rounds() == {0: 1, 1: 2, 2: 1}
    again = _trajectory(1, "x", ids=(9,))
    assert buffer.remember(1, [again]) == 1
    assert buffer.rounds() == {0: 1, 1: 1}
    assert buffer.read()[-1] == again


def test_repeating_a_round_with_the_same_content_gives_the_same_buffer(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    buffer.remember(1, [_trajectory(1, "x")])
    kept = [_trajectory(2, "x"), _trajectory(2, "x", 1, ids=(4,)), _trajectory(2, "y")]
    first = buffer.remember(2, kept), buffer.read()
    assert (buffer.remember(2, kept), buffer.read()) == first
    assert first[0] == 2


def test_equal_token_ids_of_a_task_are_stored_once_across_rounds(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    assert buffer.remember(1, [_trajectory(1, "x"), _trajectory(1, "x", 1), _trajectory(1, "y")]) == 2
    assert buffer.remember(2, [_trajectory(2, "x"), _trajectory(2, "x", 1, ids=(7,))]) == 1
    assert len(buffer) == 3


def test_without_history_only_what_a_round_learns_from_makes_a_repeat(tmp_path: Path) -> None:
    buffer = _open(tmp_path, history=False)
    assert buffer.remember(0, [_trajectory(0, "x")]) == 1
    assert buffer.remember(1, [_trajectory(1, "x"), _trajectory(1, "y")]) == 1
    buffer.note_learned(1)
    assert buffer.remember(2, [_trajectory(2, "x"), _trajectory(2, "x", 1)]) == 1
    assert [[(item.round, item.task) for item in buffer.read(round)] for round in (1, 2)] == [
        [(0, "x"), (1, "y")],
        [(2, "x")],
    ]


def test_without_history_a_round_whose_lesson_came_to_nothing_is_forgotten_too(tmp_path: Path) -> None:
    buffer = _open(tmp_path, history=False)
    buffer.remember(0, [_trajectory(0, "x")])
    for round in (1, 2):
        assert buffer.remember(round, [_trajectory(round, "x"), _trajectory(round, "y")]) == 1, "only x is a repeat"
    buffer.note_learned(2)
    assert buffer.remember(3, [_trajectory(3, "x"), _trajectory(3, "y")]) == 2
    assert [[(item.round, item.task) for item in buffer.read(round)] for round in (1, 2, 3)] == [
        [(0, "x"), (1, "y")],
        [(0, "x"), (2, "y")],
        [(3, "y"), (3, "x")],
    ]


@pytest.mark.parametrize("found", [1, 0])
def test_without_history_a_client_that_comes_late_still_learns_from_what_its_buffer_began_with(
    tmp_path: Path, found: int
) -> None:
    buffer = _open(tmp_path, history=False)
    buffer.remember(0, [_trajectory(0, "x")])
    buffer.remember(2, [])
    assert [item.round for item in buffer.read(2)] == [0]  # And the site goes down before it has learned.
    for _ in range(2):  # The second time the round is repeated.
        assert buffer.remember(3, [_trajectory(3, "y")][:found]) == found
        assert [item.round for item in buffer.read(3)] == [0, 3][: 1 + found]
        buffer.note_learned(3)
        buffer.close()
    buffer.remember(4, [_trajectory(4, "x")])
    assert [item.round for item in buffer.read(4)] == [4]


def test_equal_token_ids_with_another_train_mask_are_another_trajectory(tmp_path: Path) -> None:
    masks = [(False, True, True), (False, False, True), (False, True, True)]
    kept = [_trajectory(attempt=number, train_mask=mask) for number, mask in enumerate(masks)]
    buffer = _open(tmp_path)
    assert buffer.remember(1, kept) == 2
    assert sorted(buffer.read(), key=lambda item: item.attempt) == kept[:2]


def test_a_buffer_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    kept = [_trajectory(task=task, ids=ids) for task, ids in (("a", (1, 2, 3)), ("b", tuple(range(1000))))]
    buffer = _open(tmp_path)
    buffer.remember(1, kept)
    buffer.close()
    connection = sqlite3.connect(tmp_path / "buffer.sqlite")
    for item in kept:
        ids = np.asarray(item.token_ids, dtype="<i4").tobytes()
        old = (hashlib.sha256(ids).hexdigest(), item.task)
        connection.execute("UPDATE trajectories SET content = ? WHERE task = ?", old)
    connection.execute("DROP TABLE attempts")
    connection.execute("PRAGMA user_version=1")
    connection.commit()
    connection.close()
    assert read_file(tmp_path / "buffer.sqlite") == kept
    for _ in range(2):
        buffer = _open(tmp_path)
        assert sorted(buffer.read(), key=lambda item: item.task) == kept
        assert buffer.remember(2, [replace(item, round=2) for item in kept]) == 0, "they are known"
        buffer.close()
    version = sqlite3.connect(tmp_path / "buffer.sqlite").execute("PRAGMA user_version").fetchone()
    assert version == (SCHEMA,)


def test_equal_token_ids_of_another_world_are_another_trajectory(tmp_path: Path) -> None:
    assert _open(tmp_path).remember(1, [_trajectory(), _trajectory(world="wordle")]) == 2


def test_repeats_are_kept_where_wanted(tmp_path: Path) -> None:
    buffer = _open(tmp_path, repeats=True)
    assert buffer.remember(1, [_trajectory(1, "x"), _trajectory(1, "x", 1)]) == 2
    assert buffer.remember(2, [_trajectory(2, "x")]) == 1
    assert len(buffer.read()) == 3


@pytest.mark.parametrize("repeats", [False, True])
def test_reading_does_not_depend_on_the_order_of_writing(tmp_path: Path, repeats: bool) -> None:
    kept = [_trajectory(1, f"t{task}", attempt, ids=(attempt % 2, 5)) for task in range(5) for attempt in range(4)]
    results = []
    for number in range(4):
        random.Random(number).shuffle(kept)
        folder = tmp_path / str(number)
        buffer = _open(folder, repeats=repeats)
        buffer.remember(1, kept)
        results.append(buffer.read())
    assert all(result == results[0] for result in results)
    assert len(results[0]) == (20 if repeats else 10)


def test_the_newest_are_read_last_and_demonstrations_first(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    for round in range(3):
        buffer.remember(round, [_trajectory(round, "x", ids=(round,))])
    assert [item.round for item in buffer.read()] == [0, 1, 2]


def test_cap_and_per_task_choose_the_newest_and_delete_nothing(tmp_path: Path) -> None:
    everything = _open(tmp_path)
    for round in range(4):
        everything.remember(round, [_trajectory(round, task, ids=(round,)) for task in ("x", "y")])
    capped = _open(tmp_path, max_trajectories=3).read()
    assert [item.round for item in capped] == [2, 3, 3]
    balanced = _open(tmp_path, max_per_task=1).read()
    assert [(item.round, item.task) for item in balanced] == [(3, "y"), (3, "x")]
    both = _open(tmp_path, max_per_task=2, max_trajectories=3).read()
    assert [item.round for item in both] == [2, 3, 3]
    assert len(everything) == len(_open(tmp_path).read()) == 8


def test_a_cap_prefers_no_world_and_no_task_of_a_round(tmp_path: Path) -> None:
    kept = [
        _trajectory(1, f"train-{kind}-{number}", ids=(number, *f"{world}{kind}".encode()), world=world)
        for world in ("maze", "wordle")
        for kind in ("long", "medium", "short")
        for number in range(40)
    ]
    everything = _open(tmp_path)
    everything.remember(0, [_trajectory(0, "shown", ids=(0,))])
    everything.remember(1, kept)
    capped = _open(tmp_path, max_trajectories=120).read()
    groups = Counter((item.world, item.task.split("-")[1]) for item in capped)
    assert sum(groups.values()) == 120 and len(groups) == 6 and all(10 < number < 30 for number in groups.values())
    assert capped == [item for item in everything.read() if item in capped], "in the order of an uncapped reading"
    assert _open(tmp_path, max_trajectories=119).read() == [item for item in capped if item != _last_by_hash(capped)]
    assert everything.read() == _open(tmp_path, max_trajectories=241).read()
    assert [(item.world, item.task, item.attempt) for item in everything.read()[1:]] == sorted(
        ((item.world, item.task, item.attempt) for item in kept), reverse=True
    )


def test_a_first_round_that_is_done_again_remembers_as_little_as_the_first_time(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    assert buffer.past(3).remembered("maze") == []
    shown = _trajectory(0, "shown", purpose=Purpose.DEMONSTRATE)
    buffer.remember(0, [shown])
    buffer.remember(3, [], explored=[failed := _trajectory(3, "x", outcome=Outcome.FAILURE)])
    assert buffer.past(3).remembered("maze") == []
    assert buffer.past(4).remembered("maze") == [shown], "a round that kept nothing was there all the same"
    buffer.remember(4, [failed_no_more := replace(failed, round=4, outcome=Outcome.SUCCESS)])
    assert buffer.past(5).remembered("maze") == [shown, failed_no_more]


def _last_by_hash(items: list[Trajectory]) -> Trajectory:
    def hashed(item: Trajectory) -> str:
        mask = np.packbits(np.asarray(item.train_mask)).tobytes()
        return hashlib.sha256(np.asarray(item.token_ids, "<i4").tobytes() + mask).hexdigest()

    return max(items, key=hashed)


def test_a_trajectory_of_another_round_is_refused_and_nothing_of_it_stays(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    buffer.remember(1, [_trajectory(1, "old")])
    with pytest.raises(ValueError, match="of round 2 was given to round 1"):
        buffer.remember(1, [_trajectory(1, "a"), _trajectory(2, "b")])
    assert [item.task for item in buffer.read()] == ["old"]
    assert buffer.remember(1, [_trajectory(1, "new")]) == 1


def _filled(folder: Path) -> Path:
    buffer = _open(folder)
    buffer.remember(1, [_trajectory(1, f"t{number}", ids=tuple(range(300))) for number in range(40)])
    buffer.close()
    return folder / "buffer.sqlite"


@pytest.mark.parametrize(
    ("client", "fingerprint", "said"),
    [("other", "print", "belongs to client 'site', not to 'other'"), ("site", "else", "another tokenizer")],
)
def test_another_client_or_tokenizer_is_refused_and_the_file_untouched(
    tmp_path: Path, client: str, fingerprint: str, said: str
) -> None:
    path = _filled(tmp_path)
    before = _bytes(tmp_path)
    with pytest.raises(BufferUnusable, match=said):
        Buffer(path, client, fingerprint)
    assert _bytes(tmp_path) == before


def test_a_newer_schema_is_refused_and_the_file_untouched(tmp_path: Path) -> None:
    path = _filled(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={SCHEMA + 1}")
    connection.close()
    before = _bytes(tmp_path)
    with pytest.raises(BufferUnusable, match=f"has schema {SCHEMA + 1}, this fedse knows up to {SCHEMA}"):
        _open(tmp_path)
    assert _bytes(tmp_path) == before


def test_a_database_of_someone_else_is_refused_and_untouched(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "buffer.sqlite")
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    connection.close()
    before = _bytes(tmp_path)
    with pytest.raises(BufferUnusable, match="is not a fedse buffer"):
        _open(tmp_path)
    with pytest.raises(BufferUnusable):
        read_file(tmp_path / "buffer.sqlite")
    assert _bytes(tmp_path) == before


@pytest.mark.parametrize("content", [b"x", b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_and_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "buffer.sqlite"
    path.write_bytes(content)
    with pytest.raises(BufferUnusable, match="is damaged"):
        _open(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95])
def test_a_cut_off_file_is_refused_and_untouched(tmp_path: Path, share: float) -> None:
    path = _filled(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    before = _bytes(tmp_path)
    with pytest.raises(BufferUnusable, match="is damaged"):
        _open(tmp_path)
    assert _bytes(tmp_path) == before


def test_an_overwritten_page_is_refused_and_the_file_untouched(tmp_path: Path) -> None:
    path = _filled(tmp_path)
    content = bytearray(path.read_bytes())
    refused = 0
    for page in range(1, len(content) // 4096):
        spoilt = content.copy()
        spoilt[page * 4096 : page * 4096 + 64] = b"\xee" * 64
        path.write_bytes(spoilt)
        before = _bytes(tmp_path)
        try:
            buffer = _open(tmp_path)
        except BufferUnusable:
            assert _bytes(tmp_path) == before
            refused += 1
        else:  # the tail of a long row: nothing in SQLite's structure can tell
            buffer.close()
    assert refused >= 2


def test_a_folder_that_cannot_be_written_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotWrite, match="choose another folder"):
        _open(tmp_path / "file")
    with pytest.raises(CannotWrite, match="choose another folder"):
        _open(tmp_path / "file" / "deeper")


def test_a_folder_in_place_of_the_file_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "buffer.sqlite").mkdir()
    with pytest.raises(CannotWrite, match="cannot write the buffer"):
        _open(tmp_path)


def test_a_missing_file_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(BufferUnusable, match="there is no buffer"):
        read_file(tmp_path / "buffer.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_buffer(tmp_path: Path) -> None:
    (tmp_path / "buffer.sqlite").touch()
    assert _open(tmp_path).remember(1, [_trajectory()]) == 1


def test_a_database_with_nothing_but_its_header_becomes_a_buffer(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "buffer.sqlite")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    assert (tmp_path / "buffer.sqlite").stat().st_size > 0
    assert _open(tmp_path).remember(1, [_trajectory()]) == 1


def test_reading_a_file_of_a_newer_schema_says_so(tmp_path: Path) -> None:
    path = tmp_path / "buffer.sqlite"
    Buffer(path, "site", "print").close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version=99")
    newer.close()
    with pytest.raises(BufferUnusable, match="schema 99"):
        read_file(path)


def test_a_closed_buffer_opens_again_when_it_is_asked(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    buffer.remember(1, [_trajectory()])
    buffer.close()
    buffer.close()
    assert len(buffer) == 1 and buffer.rounds() == {1: 1}


def test_a_file_that_was_taken_away_does_not_come_back_empty(tmp_path: Path) -> None:
    buffer = _open(tmp_path)
    buffer.remember(1, [_trajectory()])
    buffer.close()
    buffer.path.unlink()
    with pytest.raises(CannotWrite, match=r"cannot write the buffer .*unable to open"):
        buffer.remember(2, [_trajectory(2)])
    assert not buffer.path.exists()
