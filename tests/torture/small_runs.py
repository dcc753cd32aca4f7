"""Small runs that are made once in a process and copied for each case, and ways to damage their files."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import fedse
from fedse.evaluation.curves import curves
from fedse.events import Event, Warned
from fedse.experiments import assembling
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder

ROUNDS = 3
ODD: list[Any] = [None, True, -1, 0, 1.5, 10**400, 1e308, "", "x", "9" * 50, "\ud800", "\x1b[2J", [], [[]], {}, {"": 0}]


def experiment(rounds: int) -> Experiment:
    maze = {"name": "maze", "mode": "original"}
    return Experiment(
        name="small",
        rounds=rounds,
        model={"name": "table", "rows": 16},
        policy="table",
        learner="table",
        aggregator="fedavgm",
        filter="none",
        clients={"east": {"worlds": [maze]}, "west": {"worlds": [{**maze, "turn_limit": 4}]}},
        start={"name": "demonstrations", "tasks": 1},
        exploration={"tasks": 2},
        evaluation={"tasks": 1, "test_tasks": 1},
    )


def play(rounds: int, runs: Path, heard: list[str] | None = None) -> Any:
    """Run, or go on. Everything that a picture reads is read, and no picture is drawn."""

    class Tracker:
        def record(self, event: Event) -> None:
            if isinstance(event, Warned) and heard is not None:
                heard.append(event.message)

    assembling.draw_run = lambda run: curves(run) and None  # type: ignore[assignment]
    return fedse.run(experiment(rounds), runs, trackers=[Tracker()])


@cache
def made() -> Path:
    """`half` has two rounds of three, `whole` all of them."""
    folder = Path(mkdtemp(prefix="torture-runs-"))
    play(ROUNDS - 1, folder / "half")
    shutil.copytree(folder / "half", folder / "whole")
    play(ROUNDS, folder / "whole")
    return folder


def truth(folder: Path) -> Any:
    """What a run reached, and what it says of each round."""
    run = RunFolder.existing(folder)
    last = run.last_round() or 0
    measured = [run.evaluation(split, last) for split in ("validation", "test")]
    return run.digest_of(last), measured, [_timeless(run.report(number)) for number in range(1, last + 1)]


def _timeless(report: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if report is None else {key: value for key, value in report.items() if key != "seconds"}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def damage(path: Path, chance: random.Random, top: Path) -> None:
    """One of many things that can happen to a file."""
    ways: list[Callable[[Path, random.Random], None]] = [
        _remove,
        _empty,
        _cut,
        _flip,
        _flip,
        _overwrite,
        _insert,
        _folder,
    ]
    if path.suffix == ".sqlite":
        ways += [_sql] * 8
    if path.suffix in (".json", ".jsonl"):
        ways += [_odd_value] * 8
    if chance.random() < 0.05:
        path.write_bytes(chance.choice(files(top)).read_bytes())
        return
    try:
        chance.choice(ways)(path, chance)
    except (ValueError, sqlite3.Error, RecursionError):
        # It was damaged before, and is neither JSON nor a database any more.
        _flip(path, chance)


def _remove(path: Path, chance: random.Random) -> None:
    path.unlink()


def _empty(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def _cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _overwrite(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content) + 1)
    content[at : at + 40] = chance.randbytes(40)
    path.write_bytes(content)


def _insert(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    at = chance.randrange(len(content) + 1)
    path.write_bytes(content[:at] + chance.choice([b"\n", b"{", b"0", b"\xff", b"[" * 5000, content]) + content[at:])


def _folder(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _sql(path: Path, chance: random.Random) -> None:
    table = chance.choice(["trajectories", "trajectories", "attempts", "facts"])
    connection = sqlite3.connect(path)
    try:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        if not rows:
            return
        row, column = chance.choice(rows), chance.choice(columns)
        keys = [name for name in ("round", "world", "task", "attempt", "name") if name in columns]
        where = " AND ".join(f"{name} = ?" for name in keys)
        place = [row[columns.index(name)] for name in keys]
        if chance.random() < 0.3:
            connection.execute(f"DELETE FROM {table} WHERE {where}", place)
        else:
            old = row[columns.index(column)]
            new = chance.choice([old[1:] if isinstance(old, (str, bytes)) else 7, "x", b"\xff", 1, 0.5, "{", ""])
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", [new, *place])
        connection.commit()
    finally:
        connection.close()


def _odd_value(path: Path, chance: random.Random) -> None:
    """Another value somewhere in the JSON of a file, or of one of its lines."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = chance.randrange(len(lines)) if lines else 0
    if not lines:
        return
    content = json.loads(lines[number])
    inner, key = content, None
    while isinstance(inner, (dict, list)) and inner:
        holder, key = inner, chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner = holder[key]
        if chance.random() < 0.2:
            break
    if key is None:
        return
    if chance.random() < 0.2:
        del holder[key]
    else:
        holder[key] = deepcopy(chance.choice(ODD))
    lines[number] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")
