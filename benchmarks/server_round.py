"""What the server does in a round while nobody plays or learns, in CPU seconds of this process.

Everything is fedse's own: checks, diagnostics, aggregator, run folder. Only the clients are not there: each answers at once
with the broadcast adapter, every value moved by a tenth of their spread in a direction of its own. A GPU in the same process
has nothing to do for as long.

python benchmarks/server_round.py                an adapter of SmolLM2-135M's shape, 5 clients
python benchmarks/server_round.py --clients 20   other numbers of clients
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aggregators import begin
from fedse.events import Event, RoundFinished
from fedse.federation.checks import CheckOptions
from fedse.federation.server import LimitOptions, Server
from fedse.plugins import resolve
from fedse.runs.folder import RunFolder
from fedse.stopwatch import Stopwatch, running
from fedse.types import ClientUpdate, RoundTask


class AtOnce:
    """Clients that need no time, and a tracker that notes what the server took for each round."""

    in_process = True

    def __init__(self, clients: int) -> None:
        self.clients = tuple(f"c{number:03d}" for number in range(clients))
        self.watch = Stopwatch(clock=time.process_time)
        self.rounds: list[Counter[str]] = []
        self._before: Counter[str] = Counter()
        self._updates: list[ClientUpdate] = []

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        self._before = Counter(self.watch.cut())
        self._updates = [self._update(name, tasks[name]) for name in self.clients]
        self.watch.cut()

    def poll(self, seconds: float | None = None) -> list[Any]:
        del seconds
        ready, self._updates = self._updates, []
        return ready

    def record(self, event: Event) -> None:
        if isinstance(event, RoundFinished):
            self.rounds.append(self._before + Counter(self.watch.cut()))

    def _update(self, name: str, task: RoundTask) -> ClientUpdate:
        draw = np.random.default_rng([task.round, self.clients.index(name)])
        moved = task.vector + 0.1 * task.vector.std() * draw.standard_normal(len(task.vector))
        counts = {"explored": 64, "errors": 0, "successes": 5, "learned_from": 200}
        return ClientUpdate(
            name, task.round, moved.astype(np.float32), task.layout, counts, {"loss": 1.0}, task=task.name
        )


def measured(clients: int, layers: int, rounds: int) -> dict[str, Any]:
    """The median of all rounds but the first, span by span."""
    there = AtOnce(clients)
    with tempfile.TemporaryDirectory() as folder, running(there.watch):
        run = RunFolder.create(Path(folder) / "run", "name: server_round\n", "")
        aggregator = resolve("aggregator", "mean")()
        server = Server(run, there, aggregator, CheckOptions(), LimitOptions(), there)
        state = server.federate(rounds, lambda: begin(layers).adapter)
    spans = {name: statistics.median(one[name] for one in there.rounds[1:]) for name in sorted(there.rounds[-1])}
    return {
        "clients": clients,
        "values": state.adapter.size,
        "seconds": {name: round(value, 4) for name, value in spans.items()},
        "all": round(sum(spans.values()), 4),
        "adapter": state.adapter.digest()[:16],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=5)
    options.add_argument("--layers", type=int, default=30, help="of SmolLM2's 30")
    options.add_argument("--rounds", type=int, default=4)
    given = options.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, **measured(given.clients, given.layers, given.rounds)}, indent=1))


if __name__ == "__main__":
    main()
