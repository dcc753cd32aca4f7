"""The list of a run's trajectories, in memory: filters, search and pages, also of ten thousand of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import Any

from fedse.errors import FedseError
from fedse.experience.buffer_file import remembered
from fedse.experience.journal import Journal
from fedse.runs.reading import RunView
from fedse.types import Trajectory

PAGE = 50
_COLUMNS = (
    *("client", "journal", "line", "world", "task", "category", "round", "adapter", "split", "purpose", "attempt"),
    *("outcome", "score", "steps", "tokens", "context", "invalid", "kept"),
)
_EXACT = ("client", "world", "outcome", "purpose", "split", "category", "round", "adapter", "kept")
SORTS = ("round", "tokens", "steps", "score", "invalid")
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
            where, values = _where(asked)
            rows = self._database.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM episodes {where} ORDER BY {_order(asked)} LIMIT ? OFFSET ?",
                (*values, PAGE, PAGE * max(0, number)),
            ).fetchall()
            (fitting,) = self._database.execute(f"SELECT COUNT(*) FROM episodes {where}", values).fetchone()
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
            where, values = _where(asked)
            found = self._database.execute(
                f"SELECT client, journal, line FROM episodes {where} ORDER BY {_order(asked)}", values
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
            found = self._database.execute(f"SELECT {', '.join(_COLUMNS)} FROM episodes ORDER BY {_order({})}")
            return [_row(row) for row in found.fetchall()]

    def read(self, row: Row) -> Trajectory:
        """The whole of it. Only rows of this catalogue name a file."""
        with self._lock:
            path = self.run.client_folder(row["client"]) / "episodes" / f"{row['journal']}.jsonl"
            wanted = (path, self._known.get(path))
            if self._open[0] != wanted:
                self._open = (wanted, list(self._journal(row["client"]).read(row["journal"])))
            if row["line"] >= len(self._open[1]):
                raise FedseError(f"the trajectory {row['id']} is not there any more: load the page again.")
            return self._open[1][row["line"]]

    def _journal(self, client: str) -> Journal:
        return Journal(self.run.client_folder(client) / "episodes")

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
                for journal in changed:
                    self._take(client, journal, kept)

    def _kept(self, client: str) -> set[tuple[int, str, str, int]]:
        self._problems.pop(client, None)
        try:
            return remembered(self.run.client_folder(client) / "buffer.sqlite")
        except FedseError as error:
            self._problems[client] = str(error)
            return set()

    def _take(self, client: str, journal: str, kept: set[tuple[int, str, str, int]]) -> None:
        self._problems.pop(f"{client}/{journal}", None)
        self._database.execute("DELETE FROM episodes WHERE client = ? AND journal = ?", (client, journal))
        marks = ", ".join("?" * (len(_COLUMNS) + 1))
        try:
            if (self.run.path / "manifest.json").is_file():
                self.run.check_journal(client, journal)
            self._database.executemany(
                f"INSERT INTO episodes VALUES ({marks})",
                _rows(client, journal, self._journal(client).read(journal), kept),
            )
        except FedseError as error:
            self._problems[f"{client}/{journal}"] = str(error)


def name(row: Mapping[str, Any] | sqlite3.Row) -> str:
    """What a trajectory is called in links."""
    return f"{row['client']}/{row['journal']}/{row['line']}"


def _row(row: sqlite3.Row) -> Row:
    return {"id": name(row), **dict(row)}


def _rows(
    client: str, journal: str, trajectories: Iterator[Trajectory], kept: set[tuple[int, str, str, int]]
) -> Iterator[tuple[Any, ...]]:
    split = "" if journal.isdecimal() else journal.partition("-")[0]
    for line, item in enumerate(trajectories):
        explored = item.purpose == "explore"
        yield (
            *(client, journal, line, item.world, item.task, item.category, item.round),
            item.round if split else item.round - 1,
            *(split, item.purpose.value, item.attempt, item.outcome.value, item.score),
            *(len(item.steps), item.agent_tokens, len(item.token_ids), item.invalid_actions),
            int(explored and (item.round, item.world, item.task, item.attempt) in kept),
            _text(item),
        )


def _text(trajectory: Trajectory) -> str:
    """What a search looks through: everything that was said, in small letters."""
    said = [text for step in trajectory.steps for text in (step.observation, step.reply)]
    return "\n".join([trajectory.task, *said, trajectory.closing, trajectory.error, trajectory.detail]).lower()


def words(search: str) -> list[str]:
    """What all has to be found: words, and what stands between quotation marks as a whole.

    >>> words('blue "move up" ball')
    ['blue', 'move up', 'ball']
    """
    parts = search.lower().split('"')
    return [word for place, part in enumerate(parts) for word in ([part] if place % 2 else part.split()) if word]


def _where(asked: Mapping[str, str]) -> tuple[str, list[Any]]:
    tests: list[str] = []
    values: list[Any] = []
    for column in _EXACT:
        if asked.get(column):
            # A number that was stored as one is not equal to its digits.
            tests.append(f"CAST({column} AS TEXT) = ?")
            values.append(asked[column])
    if asked.get("task"):
        tests.append("instr(lower(task), ?)")
        values.append(asked["task"].lower())
    for key, test in (("least", "tokens >= ?"), ("most", "tokens <= ?")):
        if asked.get(key, "").isdecimal():
            tests.append(test)
            values.append(int(asked[key]))
    for word in words(asked.get("text", "")):
        tests.append("instr(text, ?)")
        values.append(word)
    return f"WHERE {' AND '.join(tests)}" if tests else "", values


def _order(asked: Mapping[str, str]) -> str:
    usual = "adapter DESC, journal DESC, client, line"
    column, _, direction = asked.get("sort", "").partition(" ")
    return f"{column} {'DESC' if direction == 'down' else 'ASC'}, {usual}" if column in SORTS else usual
