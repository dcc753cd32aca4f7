"""The buffer: a set of trajectories that only grows, in one SQLite file for each client.

Rounds can be repeated safely: what a round adds replaces what an earlier attempt at the same round had added.
Limits (`max_trajectories`, `max_per_task`) choose what is read for learning and delete nothing.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from fedse.errors import BufferUnusable, CannotWrite
from fedse.experience.buffer_file import FIRST_LEARNED
from fedse.experience.buffer_rows import as_attempt, as_blobs, as_columns, as_text, content_of, from_row
from fedse.plugins import PluginOptions
from fedse.storage import atomic
from fedse.storage.database import look
from fedse.types import Attempt, Outcome, Purpose, Trajectory

SCHEMA = 3
"""2: `content` is a hash of token ids and train mask; in 1 it was one of the token ids alone. 3: there are `attempts`."""
APPLICATION_ID = 0x46534542  # "FSEB": tells a buffer from any other SQLite file
_MAGIC = b"SQLite format 3\0"
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trajectories (
  round INTEGER NOT NULL,
  world TEXT NOT NULL,
  task TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  purpose TEXT NOT NULL,
  adapter TEXT NOT NULL,
  outcome TEXT NOT NULL,
  score REAL NOT NULL,
  content TEXT NOT NULL,
  record TEXT NOT NULL,
  token_ids BLOB NOT NULL,
  train_mask BLOB NOT NULL,
  PRIMARY KEY (round, world, task, attempt)
) WITHOUT ROWID;
CREATE INDEX same_content ON trajectories (world, task, content);
"""
_ATTEMPTS = """
CREATE TABLE attempts (
  round INTEGER NOT NULL,
  world TEXT NOT NULL,
  task TEXT NOT NULL,
  category TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  score REAL NOT NULL,
  reward REAL NOT NULL,
  steps INTEGER NOT NULL,
  PRIMARY KEY (round, world, task, attempt)
) WITHOUT ROWID;
"""
_READ = """
SELECT record, token_ids, train_mask, content FROM trajectories WHERE (round, world, task, attempt) IN (
  SELECT round, world, task, attempt FROM (
    SELECT round, world, task, attempt, content,
      ROW_NUMBER() OVER (PARTITION BY world, task ORDER BY round DESC, attempt) AS number
    FROM trajectories WHERE round BETWEEN ? AND ? OR round = ?
  )
  -- Of a round that is not read whole, hashes choose: names would prefer a world and a kind of task.
  WHERE number <= ? ORDER BY round DESC, content, world, task, attempt LIMIT ?
) ORDER BY round, world DESC, task DESC, attempt DESC
"""
_ALL = -1
"""What SQLite takes for no limit."""
_INCOMPLETE = "attempts_incomplete"
"""Fact of a buffer that an older fedse began, which kept none."""


class BufferOptions(PluginOptions):
    """What is kept and what is read. The defaults are the paper's: everything, each distinct trajectory once."""

    repeats: bool = False
    """Keep trajectories whose token ids and train mask equal those of an earlier one of the same task."""
    history: bool = True
    """Learn from all rounds and from what the buffer began with. False: only from what the same round found and, until the
    client has finished its first round, from what the buffer began with."""
    max_trajectories: int | None = Field(default=None, ge=1)
    """Learn from at most this many trajectories, the newest first; demonstrations go last. Of a round for which there is not
    enough room, those are taken whose token ids have the smallest hashes, whatever their world and task."""
    max_per_task: int | None = Field(default=None, ge=1)
    """Learn from at most this many trajectories of one task, the newest first."""


class Buffer:
    """Trajectories of one client. Opening a file of another client, tokenizer or schema is refused.

    A connection takes memory, and there may be a thousand clients: it is opened when something is asked, and `close` may be
    called whenever nothing more is asked for a while.
    """

    def __init__(self, path: Path, client: str, fingerprint: str, options: BufferOptions | None = None) -> None:
        self.path = path
        self.options = options or BufferOptions()
        self._held: sqlite3.Connection | None = None
        with atomic.explained(path), self._explained():
            fresh = not path.exists() or self._is_empty(client, fingerprint)
            path.parent.mkdir(parents=True, exist_ok=True)
            if fresh:
                path.touch()
                self._create(client, fingerprint)
            elif self._connection.execute("PRAGMA user_version").fetchone()[0] < SCHEMA:
                self._upgrade()
            self.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._held is None:
            # A file that somebody took away must not come back empty.
            with self._explained():
                uri = f"{self.path.resolve().as_uri()}?mode=rw"
                self._held = sqlite3.connect(uri, uri=True, isolation_level=None)
                self._held.execute("PRAGMA journal_mode=WAL")
                self._held.execute("PRAGMA synchronous=FULL")
        return self._held

    def _is_empty(self, client: str, fingerprint: str) -> bool:
        """Look at an existing file without writing to it. One that was cut off while being made is empty, not damaged."""
        if self.path.is_file() and (head := _head(self.path)) not in (b"", _MAGIC):
            # SQLite takes a file of a few bytes for an empty database and would write over it.
            raise sqlite3.DatabaseError(f"it begins with {head!r}")
        look = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            if not look.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                return True
            application = look.execute("PRAGMA application_id").fetchone()[0]
            schema = look.execute("PRAGMA user_version").fetchone()[0]
            if application != APPLICATION_ID:
                raise BufferUnusable(f"{self.path} is not a fedse buffer; it was left as it is.")
            if schema > SCHEMA:
                raise BufferUnusable(
                    f"{self.path} has schema {schema}, this fedse knows up to {SCHEMA}: use the newer fedse; "
                    "the file was left as it is."
                )
            if look.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("quick_check failed")
            self._belongs(dict(look.execute("SELECT name, value FROM facts")), client, fingerprint)
            return False
        finally:
            look.close()

    def _create(self, client: str, fingerprint: str) -> None:
        with self._transaction():
            for statement in f"{_TABLES}{_ATTEMPTS}".split(";"):
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO facts VALUES (?, ?)", [("client", client), ("fingerprint", fingerprint)]
            )
            self._connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._connection.execute(f"PRAGMA user_version={SCHEMA}")

    def _upgrade(self) -> None:
        """Bring a file of an older fedse up to date."""
        key = "round, world, task, attempt"
        with self._transaction():
            rows = self._connection.execute(f"SELECT token_ids, train_mask, {key} FROM trajectories").fetchall()
            self._connection.executemany(
                f"UPDATE trajectories SET content = ? WHERE ({key}) = (?, ?, ?, ?)",
                [(content_of(token_ids, train_mask), *place) for token_ids, train_mask, *place in rows],
            )
            self._connection.execute(_ATTEMPTS)
            self._connection.execute("INSERT INTO facts VALUES (?, '')", (_INCOMPLETE,))
            self._connection.execute(f"PRAGMA user_version={SCHEMA}")

    def _belongs(self, facts: Mapping[str, str], client: str, fingerprint: str) -> None:
        if facts["client"] != client:
            raise BufferUnusable(f"{self.path} belongs to client '{facts['client']}', not to '{client}'.")
        if facts["fingerprint"] != fingerprint:
            raise BufferUnusable(
                f"{self.path} was made with another tokenizer or chat template: its token ids mean something else to "
                "this model. Use the model it was made with, or start a new run."
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CannotWrite(f"cannot write the buffer {self.path}: {error}.") from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # What was given does not fit; the file is as it was.
        except sqlite3.DatabaseError as error:
            raise BufferUnusable(
                f"{self.path} is damaged ({error}); it was left as it is. Restore it from a packed run, or move it "
                "away to begin this client's experience anew."
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite itself takes a transaction back when the disk is full.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def remember(self, round: int, trajectories: Iterable[Trajectory], explored: Iterable[Trajectory] = ()) -> int:
        """Add what a round kept, in one transaction, and note every attempt of it, failed or not; returns how many were
        new. Later rounds are forgotten with it."""
        added = 0
        with self._explained(), self._transaction():
            self._connection.execute("DELETE FROM trajectories WHERE round >= ?", (round,))
            self._connection.execute("DELETE FROM attempts WHERE round >= ?", (round,))
            self._connection.executemany(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [as_attempt(item) for item in explored]
            )
            # Sorted, so that of two equal ones the same is stored whatever order they come in.
            for trajectory in sorted(trajectories, key=lambda item: (item.world, item.task, item.attempt)):
                if trajectory.round != round:
                    raise ValueError(f"a trajectory of round {trajectory.round} was given to round {round}")
                token_ids, train_mask = as_blobs(trajectory)
                content = content_of(token_ids, train_mask)
                if not self.options.repeats and self._holds(trajectory, content):
                    continue
                self._connection.execute(
                    "INSERT INTO trajectories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (*as_columns(trajectory), content, as_text(trajectory), token_ids, train_mask),
                )
                added += 1
        return added

    def _holds(self, trajectory: Trajectory, content: str) -> bool:
        # What a round does not learn from cannot make its own finds repeats.
        found = self._connection.execute(
            "SELECT 1 FROM trajectories WHERE world = ? AND task = ? AND content = ?"
            " AND (round BETWEEN ? AND ? OR round = ?)",
            (trajectory.world, trajectory.task, content, *self._reads(trajectory.round)),
        )
        return found.fetchone() is not None

    def _reads(self, round: int) -> tuple[int, int, int]:
        """The first and the last of the rounds that a round learns from, and one more. As long as nothing came of a lesson,
        what the buffer began with is new as well."""
        if self.options.history:
            return 0, round, round
        return round, round, 0 if round <= self._first_learned() else round

    def note_learned(self, round: int) -> None:
        """Note that a client has learned from what this round reads. Only one without history has to know."""
        if not self.options.history and round < self._first_learned():
            with self._explained():
                self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (FIRST_LEARNED, str(round)))

    def _first_learned(self) -> float:
        """A client may have missed round 1, or failed in it. Later than any round as long as there was none."""
        noted = self._connection.execute("SELECT value FROM facts WHERE name = ?", (FIRST_LEARNED,)).fetchone()
        return int(noted[0]) if noted else math.inf

    def read(self, round: int | None = None) -> list[Trajectory]:
        """What to learn from in a round (the newest), in an order that depends on nothing but the content."""
        last = max(self.rounds(), default=0) if round is None else round
        most = sys.maxsize if self.options.max_per_task is None else self.options.max_per_task
        cap = _ALL if self.options.max_trajectories is None else self.options.max_trajectories
        rows = self._connection.execute(_READ, (*self._reads(last), most, cap))
        return [from_row(self.path, *row) for row in rows]

    def past(self, round: int) -> BufferedPast:
        """The attempts of earlier rounds."""
        return BufferedPast(self, round)

    def attempts(self, before: int, world: str = "") -> list[Attempt]:
        """Every exploration before a round, oldest first."""
        with self._explained():
            if self._connection.execute("SELECT 1 FROM facts WHERE name = ?", (_INCOMPLETE,)).fetchone():
                raise BufferUnusable(
                    f"{self.path} was begun by an older fedse, which kept no attempts: what is explored here cannot depend "
                    "on them. Begin a new run, or use the curriculum 'uniform'."
                )
            rows = self._connection.execute(
                "SELECT * FROM attempts WHERE round < ? AND (? = '' OR world = ?) ORDER BY round, world, task, attempt",
                (before, world, world),
            ).fetchall()
            return [Attempt(*row)._replace(outcome=Outcome(row[5])) for row in rows]

    def remembered(self, before: int, world: str) -> list[Trajectory]:
        """Everything of a world before a round, oldest first, whatever is learned from. A client's first round finds
        nothing, also when it is done again in a buffer that it has begun."""
        earlier = any(
            self._connection.execute(f"SELECT 1 FROM {table} WHERE round > 0 AND round < ?", (before,)).fetchone()
            for table in ("trajectories", "attempts")
        )
        rows = self._connection.execute(
            "SELECT record, token_ids, train_mask, content FROM trajectories WHERE round < ? AND world = ?"
            " ORDER BY round, task, attempt",
            (before if earlier else 0, world),
        )
        return [from_row(self.path, *row) for row in rows]

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM trajectories").fetchone()[0])

    def rounds(self) -> dict[int, int]:
        """Number of trajectories by the round they came from; demonstrations are round 0."""
        return dict(self._connection.execute("SELECT round, COUNT(*) FROM trajectories GROUP BY round ORDER BY round"))

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class BufferedPast:
    """What a client knows before a round, read when it is asked for."""

    def __init__(self, buffer: Buffer, round: int) -> None:
        self._buffer = buffer
        self._round = round

    def attempts(self, world: str = "") -> list[Attempt]:
        try:
            return self._buffer.attempts(self._round, world)
        finally:
            self._buffer.close()

    def remembered(self, world: str) -> list[Trajectory]:
        try:
            return self._buffer.remembered(self._round, world)
        finally:
            self._buffer.close()


def read_file(path: Path, purpose: Purpose | None = None) -> list[Trajectory]:
    """Everything in a buffer file, or what was played for one purpose, oldest first, whoever it belongs to."""
    with look(path) as connection:
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema > SCHEMA:
            raise BufferUnusable(f"{path} has schema {schema}, this fedse knows up to {SCHEMA}: use the newer fedse.")
        hashed = "content" if schema > 1 else "''"
        rows = connection.execute(
            f"SELECT record, token_ids, train_mask, {hashed} FROM trajectories WHERE ? IN ('', purpose)"
            " ORDER BY round, world, task, attempt",
            (purpose or "",),
        )
        return [from_row(path, *row) for row in rows]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_MAGIC))
