"""The list of a run's trajectories, in memory: filters, search and pages, also of ten thousand of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

from fedse.errors import FedseError
from fedse.experience.buffer import read_file
from fedse.experience.buffer_file import remembered
from fedse.experience.journal import Journal
from fedse.page.query import order, where
from fedse.runs.reading import RunView
from fedse.runs.record import RoundRecord
from fedse.types import Outcome, Purpose, Trajectory

PAGE = 50
DEMONSTRATIONS = "demonstrations"
"""Stands for a journal: what a buffer began with was played by nobody here, and is in the buffer alone."""
_COLUMNS = (
    *("client", "journal", "line", "world", "task", "category", "round", "adapter", "split", "purpose", "attempt"),
    *("outcome", "score", "steps", "tokens", "context", "invalid", "kept"),
)
_SCHEMA = f"CREATE TABLE episodes ({', '.join(_COLUMNS)}, text)"

Row = dict[str, Any]


class Catalogue:
    """Journals are read once, and again when they have changed: a run may be going on."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        self._problems: dict[str, str] = {}
        self._lock = RLock()
        self._known: dict[Path, tuple[float, int]] = {}
        self._open: tuple[Any, list[Trajectory]] = (None, [])
        """The journal that was read last: neighbours are read next."""
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        self._database.execute(_SCHEMA)
        for columns in ("client, journal, line", "world, task", "round"):
            self._database.execute(f"CREATE INDEX [{columns}] ON episodes ({columns})")

    def clients(self) -> list[str]:
        return sorted(path.name for path in (self.run.path / "clients").glob("*") if path.is_dir())

    def page(self, asked: Mapping[str, str], number: int = 0) -> dict[str, Any]:
        """A page of what fits, how many fit, and what there is to choose from."""
        with self._lock:
            self._refresh()
            fits, values = where(asked)
            rows = self._database.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM episodes {fits} ORDER BY {order(asked)} LIMIT ? OFFSET ?",
                (*values, PAGE, PAGE * max(0, number)),
            ).fetchall()
            (fitting,) = self._database.execute(f"SELECT COUNT(*) FROM episodes {fits}", values).fetchone()
            (total,) = self._database.execute("SELECT COUNT(*) FROM episodes").fetchone()
            return {
                "rows": [_row(row) for row in rows],
                "fitting": fitting,
                "total": total,
                "page": number,
                "pages": -(-fitting // PAGE),
                "choices": self._choices(),
                "problems": sorted(set(self._problems.values())),
            }

    def around(self, asked: Mapping[str, str], row: Row) -> dict[str, Any]:
        """Where a trajectory stands among those that fit, and which ones are before and after it."""
        with self._lock:
            fits, values = where(asked)
            found = self._database.execute(
                f"SELECT client, journal, line FROM episodes {fits} ORDER BY {order(asked)}", values
            ).fetchall()
            names = [name(item) for item in found]
        at = names.index(row["id"]) if row["id"] in names else -1
        return {
            "position": at + 1,
            "fitting": len(names),
            "previous": names[at - 1] if at > 0 else None,
            "next": names[at + 1] if 0 <= at < len(names) - 1 else None,
        }

    def row(self, client: str, journal: str, line: int) -> Row | None:
        with self._lock:
            self._refresh()
            found = self._database.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM episodes WHERE client = ? AND journal = ? AND line = ?",
                (client, journal, line),
            ).fetchone()
        return None if found is None else _row(found)

    def of_task(self, world: str, task: str) -> list[Row]:
        """Every attempt at a task, in the order of the adapters that made it."""
        with self._lock:
            found = self._database.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM episodes WHERE world = ? AND task = ?"
                " ORDER BY adapter, client, journal, attempt, line",
                (world, task),
            ).fetchall()
        return [_row(row) for row in found]

    def every(self) -> list[Row]:
        with self._lock:
            self._refresh()
            found = self._database.execute(f"SELECT {', '.join(_COLUMNS)} FROM episodes ORDER BY {order({})}")
            return [_row(row) for row in found.fetchall()]

    def read(self, row: Row) -> Trajectory:
        """The whole of it. Only rows of this catalogue name a file."""
        with self._lock:
            path = self.run.client_folder(row["client"]) / "episodes" / f"{row['journal']}.jsonl"
            wanted = (path, self._known.get(path))
            if self._open[0] != wanted:
                self._open = (wanted, list(self._played(row["client"], row["journal"])))
            if row["line"] >= len(self._open[1]):
                raise FedseError(f"the trajectory {row['id']} is not there any more: load the page again.")
            return self._open[1][row["line"]]

    def _journal(self, client: str) -> Journal:
        return Journal(self.run.client_folder(client) / "episodes")

    def _played(self, client: str, journal: str) -> Iterable[Trajectory]:
        if journal == DEMONSTRATIONS:
            return read_file(self._buffer(client), Purpose.DEMONSTRATE)
        return self._journal(client).read(journal)

    def _buffer(self, client: str) -> Path:
        return self.run.client_folder(client) / "buffer.sqlite"

    def _choices(self) -> dict[str, list[Any]]:
        return {
            column: [
                {"value": value, "count": count}
                for value, count in self._database.execute(
                    f"SELECT {column}, COUNT(*) FROM episodes WHERE {column} != '' GROUP BY {column} ORDER BY {column}"
                )
            ]
            for column in ("client", "world", "outcome", "purpose", "split", "round")
        }

    def _refresh(self) -> None:
        look = _OneLook(self.run.path)
        for client in self.clients():
            changed = []
            for journal in self._journal(client).names():
                path = self.run.client_folder(client) / "episodes" / f"{journal}.jsonl"
                state = (path.stat().st_mtime, path.stat().st_size)
                if self._known.get(path) != state:
                    self._known[path] = state
                    changed.append(journal)
            if changed:
                kept = self._kept(client)
                for journal in [*changed, *self._unread_demonstrations(client)]:
                    self._take(client, journal, kept, look)

    def _unread_demonstrations(self, client: str) -> list[str]:
        """They are all there before the first episode is, and stay."""
        if self._buffer(client) in self._known or not self._buffer(client).exists():
            return []
        self._known[self._buffer(client)] = (0.0, 0)
        return [DEMONSTRATIONS]

    def _kept(self, client: str) -> set[tuple[int, str, str, int]]:
        self._problems.pop(client, None)
        try:
            return remembered(self._buffer(client))
        except FedseError as error:
            self._problems[client] = str(error)
            return set()

    def _take(self, client: str, journal: str, kept: set[tuple[int, str, str, int]], look: RunView) -> None:
        self._problems.pop(f"{client}/{journal}", None)
        self._database.execute("DELETE FROM episodes WHERE client = ? AND journal = ?", (client, journal))
        marks = ", ".join("?" * (len(_COLUMNS) + 1))
        try:
            if journal != DEMONSTRATIONS and (self.run.path / "manifest.json").is_file():
                look.check_journal(client, journal)
            self._database.executemany(
                f"INSERT INTO episodes VALUES ({marks})",
                _rows(client, journal, self._played(client, journal), kept),
            )
        except FedseError as error:
            self._problems[f"{client}/{journal}"] = str(error)


class _OneLook(RunView):
    """What is noted of all clients is read once for all of them: there may be a thousand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._records: dict[int, RoundRecord | None] = {}

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        return super().manifest()

    def manifest(self) -> dict[str, Any]:
        return self._manifest

    def record_of(self, number: int) -> RoundRecord | None:
        if number not in self._records:
            self._records[number] = super().record_of(number)
        return self._records[number]


def name(row: Mapping[str, Any] | sqlite3.Row) -> str:
    """What a trajectory is called in links."""
    return f"{row['client']}/{row['journal']}/{row['line']}"


def _row(row: sqlite3.Row) -> Row:
    return {"id": name(row), **dict(row)}


def _rows(
    client: str, journal: str, trajectories: Iterable[Trajectory], kept: set[tuple[int, str, str, int]]
) -> Iterator[tuple[Any, ...]]:
    split = "" if journal.isdecimal() or journal == DEMONSTRATIONS else journal.partition("-")[0]
    for line, item in enumerate(trajectories):
        is_kept = item.purpose is Purpose.DEMONSTRATE or (
            item.purpose in (Purpose.EXPLORE, Purpose.RELABEL)
            # What a rescue made may have the number of an attempt in which the world broke.
            and item.outcome is not Outcome.ERROR
            and (item.round, item.world, item.task, item.attempt) in kept
        )
        yield (
            *(client, journal, line, item.world, item.task, item.category, item.round),
            item.round if split else item.round - 1,
            *(split, item.purpose.value, item.attempt, item.outcome.value, item.score),
            *(len(item.steps), item.agent_tokens, len(item.token_ids), item.invalid_actions),
            int(is_kept),
            _text(item),
        )


def _text(trajectory: Trajectory) -> str:
    """What a search looks through: everything that was said, in small letters."""
    said = [text for step in trajectory.steps for text in (step.observation, step.reply)]
    return "\n".join([trajectory.task, *said, trajectory.closing, trajectory.error, trajectory.detail]).lower()
