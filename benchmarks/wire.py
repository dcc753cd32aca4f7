"""What somebody on the wire sees of a deployment: lengths, directions and times of encrypted bytes, and what they tell.

    python benchmarks/wire.py [--rounds 4] [--withheld] [--output docs/results/wire.json]

A hub with its fence and five sites with nano, all on this machine, with TLS and keys. Each site reaches the hub through a
forwarder, which opens nothing and keeps nothing but how long each record was, when it passed, and in which direction. What
each site learned from is read from its own buffer afterwards, and laid beside it. With --withheld no site tells counts,
metrics or scores (`leaves` in its own file).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from engines import FEDSE, environment, free_port
from fedse.experience.buffer_file import sources

MAZE = {"name": "maze", "rules": "bare", "observation_length": "brief", "shortest": 4, "longest": 6, "turn_limit": 6}
TEXTCRAFT = {
    **{"name": "textcraft", "rules": "bare", "observation_length": "brief", "shallowest": 2, "deepest": 2},
    "turn_limit": 4,
}
SITES: dict[str, Any] = {
    "ten": {"worlds": [MAZE], "start": {"name": "demonstrations", "tasks": 10}},
    "forty": {"worlds": [MAZE], "start": {"name": "demonstrations", "tasks": 40}},
    "eighty": {"worlds": [MAZE], "start": {"name": "demonstrations", "tasks": 80}},
    "other": {"worlds": [TEXTCRAFT], "start": {"name": "demonstrations", "tasks": 40}},
    "nothing": {"worlds": [{**MAZE, "shortest": 10, "longest": 12, "turn_limit": 12}], "start": "none"},
}
"""Three that differ in how much they have, one that has another world, and one that begins with nothing and has tasks that
it hardly ever solves."""
ANSWER = 3000
"""Bytes above which what a site sends at once is part of an answer: polls, heartbeats and confirmations are below 1,600."""
HEAD, ENCRYPTED, TICKETS = 5, 23, 2
"""Bytes before a record's content, the kind of encrypted ones, and how many of them a hub sends unasked after a greeting."""
WITHHELD = {"metrics": [], "counts": "withheld", "scores": "withheld"}


def experiment(rounds: int) -> dict[str, Any]:
    return {
        "name": "wire",
        "rounds": rounds,
        "model": {"name": "nano", "threads": 1},
        "clients": SITES,
        "exploration": {"tasks": 8},
        "evaluation": {"tasks": 4, "test_tasks": 0},
        "learner": {"learning_rate": 5e-3, "batch_size": 4},
        "policy": {"slots": 64, "reply_tokens": 40},
    }


class Passed(NamedTuple):
    """A record of TLS: its content is encrypted, its length is not."""

    time: float
    connection: int
    up: bool
    """From the site to the hub."""
    bytes: int


class Records:
    """Tells records in a stream of bytes apart, by the five bytes that each begins with."""

    def __init__(self) -> None:
        self._rest = b""

    def lengths(self, content: bytes) -> Iterator[int]:
        """Of encrypted records that are complete now. What is said in the open comes before them."""
        self._rest += content
        while len(self._rest) >= HEAD and len(self._rest) >= (
            whole := HEAD + int.from_bytes(self._rest[3:HEAD], "big")
        ):
            if self._rest[0] == ENCRYPTED:
                yield whole
            self._rest = self._rest[whole:]


class Forwarder:
    """Between one site and the hub. It has no key, so it could not read what passes."""

    def __init__(self, hub: int) -> None:
        self.passed: list[Passed] = []
        self._hub = hub
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for number in itertools.count():
            site, _ = self._listener.accept()
            try:
                hub = socket.create_connection(("127.0.0.1", self._hub))
            except OSError:
                site.close()  # The hub is not open yet: the site tries again.
                continue
            for source, target, up in ((site, hub, True), (hub, site, False)):
                threading.Thread(target=self._pump, args=(source, target, number, up), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, number: int, up: bool) -> None:
        records = Records()
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self.passed += [Passed(time.time(), number, up, length) for length in records.lengths(content)]
                target.sendall(content)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def deploy(folder: Path, content: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, list[Passed]]:
    """Make the run, and tell what passed between each site and the hub."""
    (folder / "experiment.yaml").write_text(yaml.safe_dump(content))
    public, behind = free_port(), free_port()
    words = [word for site in content["clients"] for word in ("--site", site)]
    line = [*FEDSE, "hub", "init", "hub", "--address", f"127.0.0.1:{public}", "--port", str(behind), *words]
    subprocess.run(line, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    taps = {site: Forwarder(public) for site in content["clients"]}
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            running.append(subprocess.Popen([*FEDSE, *words], cwd=folder, env=environment(), stdout=log, stderr=log))
        return running[-1]

    try:
        for site, tap in taps.items():
            shutil.copyfile(folder / "experiment.yaml", folder / f"hub/sites/{site}/experiment.yaml")
            file = folder / f"hub/sites/{site}/site.yaml"
            own = {**yaml.safe_load(file.read_text()), "hub": f"127.0.0.1:{tap.port}", "leaves": dict(leaves)}
            file.write_text(yaml.safe_dump(own))
            start(site, "site", "run", str(file))
        hub = start("hub", "hub", "run", "experiment.yaml")
        while hub.poll() is None:
            if any(site.poll() is not None for site in running[:-1]):
                raise SystemExit("\n".join(path.read_text()[-1000:] for path in sorted(folder.glob("*.log"))))
            time.sleep(1)
        if hub.returncode:
            raise SystemExit((folder / "hub.log").read_text()[-3000:])
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()
    return {site: sorted(tap.passed) for site, tap in taps.items()}


class Request(NamedTuple):
    """What a site sent at once in a connection, and what came back."""

    begins: float
    ends: float
    up: int
    down: int


def requests(passed: Sequence[Passed]) -> list[Request]:
    """Told apart by their directions alone: bytes up after bytes down are the next request."""
    found: list[Request] = []
    last: dict[int, int] = {}
    for item in without_greetings(passed):
        at = last.get(item.connection)
        if at is None or (item.up and found[at].down):
            last[item.connection] = len(found)
            found.append(Request(item.time, item.time, item.bytes * item.up, item.bytes * (not item.up)))
        else:
            known = found[at]
            up, down = known.up + item.bytes * item.up, known.down + item.bytes * (not item.up)
            found[at] = Request(known.begins, item.time, up, down)
    return found


def without_greetings(passed: Sequence[Passed]) -> Iterator[Passed]:
    """A connection begins with what the hub shows of itself, the site's last word on it, and tickets for later ones."""
    greeted: set[int] = set()
    tickets: dict[int, int] = {}
    for item in passed:
        if item.connection not in greeted:
            if item.up:
                greeted.add(item.connection)
        elif not item.up and tickets.get(item.connection, 0) < TICKETS:
            tickets[item.connection] = tickets.get(item.connection, 0) + 1
        else:
            yield item


class Answer(NamedTuple):
    """A task and its answer, as somebody on the wire sees them."""

    adapter_down: int
    seconds: float
    """From the end of the adapter that came to the beginning of the answer."""
    told_up: int
    """The smaller part of the answer."""
    adapter_up: int
    """The larger one; 0 if there is none."""


def answers(passed: Sequence[Passed], adapter: int) -> list[Answer]:
    """Whoever knows the model knows about how many bytes an adapter has."""
    seen = requests(passed)
    tasks = [item for item in seen if item.down > adapter / 2]
    found = []
    for task, following in zip(tasks, [*tasks[1:], None], strict=True):
        until = following.begins if following else float("inf")
        sent = [item for item in seen if task.ends < item.begins < until and item.up > ANSWER]
        if sent:
            large = sum(item.up for item in sent if item.up > adapter / 2)
            small = sum(item.up for item in sent if item.up <= adapter / 2)
            found.append(Answer(task.down, min(item.begins for item in sent) - task.ends, small, large))
    # A task without an answer would move all later ones up by a round.
    assert len(found) == len(tasks), f"{len(tasks)} tasks and {len(found)} answers"
    return found


def learned_from(folder: Path, rounds: int) -> dict[str, list[int]]:
    """What each site did learn from, by its own buffer: everything that was in it by the end of the round."""
    found = {}
    for site in SITES:
        rows = sources(folder / f"hub/sites/{site}/data/wire/clients/{site}/buffer.sqlite")
        found[site] = [sum(count for at, *_, count in rows if at <= number) for number in range(1, rounds + 1)]
    return found


def correlation(rows: Sequence[Mapping[str, Any]], what: str) -> float | None:
    """Between the trajectories that were learned from and something on the wire; None where that is constant."""
    pairs = np.array([[row["learned_from"], row[what]] for row in rows], dtype=float)
    return None if np.ptp(pairs[:, 1]) == 0 else float(np.corrcoef(pairs.T)[0, 1])


def measure(rounds: int, leaves: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="fedse-benchmark-"))
    try:
        passed = deploy(folder, experiment(rounds), leaves)
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/rounds/*/report.json"))]
        adapter = max(entry["bytes"] for report in reports for entry in report["clients"].values())
        truth = learned_from(folder, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for site, items in passed.items():
        # The answers after those of the rounds are of closing evaluations.
        for number, seen in enumerate(answers(items, adapter)[:rounds], start=1):
            world = SITES[site]["worlds"][0]["name"]
            rows.append(
                {
                    "site": site,
                    "world": world,
                    "round": number,
                    "learned_from": truth[site][number - 1],
                    **seen._asdict(),
                }
            )
    learning = [row for row in rows if row["learned_from"]]
    alike = [row for row in learning if row["world"] == "maze"]
    return {
        "leaves": dict(leaves),
        "load": os.getloadavg()[0],
        "rows": rows,
        "correlation": {
            "seconds, all that learned": correlation(learning, "seconds"),
            "seconds, maze alone": correlation(alike, "seconds"),
            "bytes beside the adapter, all that learned": correlation(learning, "told_up"),
            "bytes of the adapter": correlation(learning, "adapter_up"),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--withheld", action="store_true")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = measure(given.rounds, WITHHELD if given.withheld else {})
    print("| site | world | round | learned from | seconds | bytes up beside the adapter | adapter up | adapter down |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in found["rows"]:
        print(
            f"| {row['site']} | {row['world']} | {row['round']} | {row['learned_from']} | {row['seconds']:.1f} | "
            f"{row['told_up']:,} | {row['adapter_up']:,} | {row['adapter_down']:,} |"
        )
    for name, value in found["correlation"].items():
        print(f"{name}: {'constant' if value is None else f'{value:.2f}'}")
    if given.output:
        given.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
