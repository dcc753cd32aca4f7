"""Whether a run can go on from what is on its disk. Every digest of its records is checked before any work; what is damaged
makes the run go on from the last round that is whole, because a round is a function of the state before it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from fedse.clients.kept import BUFFER, in_words, is_for_reading, kept_files, kept_if_readable, round_of
from fedse.errors import BufferUnusable, RunConflict
from fedse.events import Warned
from fedse.experience.buffer_file import forget_beginning
from fedse.runs import reports
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.record import RoundRecord
from fedse.storage import atomic

Warnings = list[Warned]


def restore(run: RunFolder) -> Warnings:
    """Make the newest round of a run one that is whole, and tell what was done for it. The caller holds the run's lock.

    Raises `RunConflict` where nothing but the beginning is left: then a copy may be worth more than doing all again.
    """
    run.check_experiment()
    last = run.last_round()
    if last is None:
        return []
    stored = Stored(run, last)
    if stored.records[last] is None:
        return [Warned(kind="unchecked", message=f"{run.path}: {_older(last)}"), *_readable(run, last)]
    problem = stored.problem(last)
    if not problem:
        stored.forget_what_is_not_noted(last)
        return _readable(run, last)
    whole = next((number for number in range(last - 1, 0, -1) if not stored.problem(number)), None)
    if whole is None:
        raise RunConflict(
            f"{problem}, and no earlier round of {run.path} is whole: restore it from a copy of the run, or move the "
            "folder away and begin anew."
        )
    aside = run.fall_back(whole, stored.to_set_aside(whole))
    stored.forget_what_is_not_noted(whole)
    again = f"round {last}" if last == whole + 1 else f"rounds {whole + 1} to {last}"
    told = (
        f"{problem}: the run resumes from round {whole}, the last one that is whole, and does {again} again; what was "
        f"there is in {aside}."
    )
    return [Warned(kind="fell_back", message=told), *_readable(run, whole)]


def check(run: RunView) -> None:
    """Refuse to work with a run whose newest round is not whole."""
    run.check_experiment()
    last = run.last_round()
    if last is None or run.record_of(last) is None:
        return
    if problem := Stored(run, last).problem(last):
        raise RunConflict(
            f"{problem}: restore it from a copy of the run; `fedse run` would resume from the last round that is whole."
        )


def check_experience(run: RunView, clients: Iterable[str]) -> None:
    """Refuse buffers and notes that are not what was written."""
    last = run.last_round()
    if last is None or run.record_of(last) is None:
        return
    stored = Stored(run, last)
    for client in clients:
        for problem in stored.problems_of(client, last):
            raise RunConflict(f"{problem}: restore it from a copy of the run.")


def _older(last: int) -> str:
    return (
        f"round {last} was stored by an older fedse, which noted no digests: buffers, notes and the server's memory are "
        "taken as they are."
    )


def _readable(run: RunFolder, last: int) -> Warnings:
    """Put reports and evaluations aside that could not be drawn after all the work. No round depends on them."""
    damaged: list[tuple[Path, str]] = []
    missing = []
    for number in range(1, last + 1):
        try:
            if run.report(number) is None:
                missing.append(number)
        except RunConflict as error:
            damaged.append((run.round_folder(number) / reports.NAME, str(error)))
    noted = run.manifest().get("evaluations", {})
    for path in sorted((run.path / "evaluations").glob("*.json")):
        if path.name.startswith(("validation-", "test-", "train-")):
            try:
                reports.read_evaluation(path, noted.get(path.name, ""))
            except RunConflict as error:
                damaged.append((path, str(error)))
    told = [
        Warned(
            kind="report_missing",
            message=f"{run.path}: the report of round {number} is missing, and tables and pictures are without it.",
        )
        for number in missing
    ]
    if damaged:
        aside = run.put_aside([path for path, _ in damaged])
        told += [
            Warned(kind="set_aside", message=f"{why} It is now in {aside}, and the run continues without it.")
            for _, why in damaged
        ]
    return told


class Stored:
    """The disk of a run beside what its records say of it."""

    def __init__(self, run: RunView, last: int) -> None:
        self.run = run
        self._unreadable: dict[int, str] = {}
        self.records: dict[int, RoundRecord | None] = {number: self._record(number) for number in range(last + 1)}
        self._last = last

    def _record(self, number: int) -> RoundRecord | None:
        try:
            return self.run.record_of(number)
        except RunConflict as error:
            self._unreadable[number] = str(error).partition(": restore")[0]
            return RoundRecord({})

    @cached_property
    def first(self) -> int:
        """The first round of which there is a record; it knows everything before it as well."""
        return min(number for number, record in self.records.items() if record is not None)

    @cached_property
    def _found(self) -> dict[str, dict[str, str]]:
        """What is on the disk of each client."""
        return {name: kept_if_readable(self.run.client_folder(name), self._last) for name in self._clients}

    @cached_property
    def _clients(self) -> list[str]:
        folders = (self.run.path / "clients").glob("*")
        noted = (name for record in self.records.values() if record is not None for name in record.clients)
        return sorted({*(path.name for path in folders if path.is_dir()), *noted})

    def _noted(self, client: str, until: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for number in range(self.first, until + 1):
            record = self.records[number]
            found |= {} if record is None else record.clients.get(client, {})
        return found

    def problem(self, number: int) -> str:
        """Why the state after a round cannot be used; nothing if it can."""
        if self.records[number] is None:
            return f"of round {number} there is no record"
        for earlier in range(self.first, number + 1):
            if earlier in self._unreadable:
                return self._unreadable[earlier]
        try:
            self.run.check_state(number)
        except RunConflict as error:
            return str(error).partition(": ")[0]
        return next((problem for client in self._clients for problem in self.problems_of(client, number)), "")

    def problems_of(self, client: str, number: int) -> Iterator[str]:
        """What of a client is not as it was after a round."""
        folder = self.run.client_folder(client)
        noted, later = self._noted(client, number), self._noted(client, self._last)
        found = self._found.get(client, {})
        for name, digest in noted.items():
            if not is_for_reading(name) and found.get(name) != digest:
                what = "is not what was written" if name in found else "is missing or cannot be read"
                yield f"{folder / in_words(name)} {what}"
        for name in sorted(found.keys() - noted.keys()):
            own = not is_for_reading(name) and round_of(name) <= number
            if own and not self._may_be(client, name, noted, later):
                yield f"{folder / in_words(name)} is not part of the run"

    def _may_be(self, client: str, name: str, noted: Mapping[str, str], later: Mapping[str, str]) -> bool:
        """Whether something that no record up to a round names can be there nevertheless."""
        if self._found[client][name] == later.get(name):
            return True  # It came later, or what it belongs to did.
        if round_of(name) == 0:
            return not _rows_of_buffer(noted)  # The interrupted round was the client's first.
        record = self.records.get(round_of(name))
        return record is not None and client in record.absent

    def forget_what_is_not_noted(self, number: int) -> None:
        """What a buffer begins with may come from an interrupted round, of which nothing is noted."""
        for client in self._clients:
            path, found = self.run.client_folder(client) / BUFFER, self._found[client]
            # What a client that was late for a round has of it rests on the beginning, and would go with it.
            late = _rows_of_buffer(name for name in found if 0 < round_of(name) <= number)
            if (
                "buffer/0000" in found
                and not late
                and not _rows_of_buffer(self._noted(client, number))
                and path.exists()
            ):
                try:
                    forget_beginning(path)
                except sqlite3.Error as error:
                    raise BufferUnusable(f"{path} is damaged ({error}); it was left as it is.") from error

    def to_set_aside(self, number: int) -> list[Path]:
        """What clients have from later rounds, or what is damaged: files as they are, of buffers a copy, since what they
        hold of earlier rounds is needed."""
        aside = []
        for client in self._clients:
            folder = self.run.client_folder(client)
            files = kept_files(folder, self._last)
            aside += [folder / name for name in files if round_of(name) > number and not is_for_reading(name)]
            if (folder / BUFFER).exists():
                aside += _copied(folder / BUFFER)
        return aside


def _rows_of_buffer(names: Iterable[str]) -> bool:
    return any(name.startswith("buffer/") and name != "buffer/facts" for name in names)


def _copied(path: Path) -> list[Path]:
    """A copy beside a buffer, with what SQLite has not yet written into the file itself."""
    made = []
    for ending in ("", "-wal"):
        source, copy = (path.with_name(f"{name}{ending}") for name in (path.name, f"damaged-{path.name}"))
        if source.exists():
            with atomic.explained(copy):
                shutil.copy2(source, copy)
            made.append(copy)
    return made
