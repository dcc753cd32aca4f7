"""Memory and time of a round against the number of clients: model `nano`, local engine, one small Maze for each client.

python benchmarks/clients.py --output docs/results/clients.json --picture docs/pictures/clients.png
python benchmarks/clients.py --clients 1 30 100          other numbers

Each number of clients is a run in a process of its own.

round     seconds of a round after the first, in which demonstrations are made and experts measured once; the median. CPU
          time of the one thread, which other work on the machine disturbs less, and time on the clock
memory    largest resident memory of the process, up to the end of the last round
disk      what the run leaves on disk for each client; update is the adapter that lies there until it is aggregated
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fedse
from fedse.events import Event, RoundFinished, RoundStarted, RunStarted
from fedse.experiments.options import Experiment
from fedse.runs.folder import RunFolder

COUNTS = [1, 3, 10, 30, 100, 300, 1000]
WORLD = {"name": "maze", "rules": "bare", "observation_length": "brief", "size": 3, "longest": 4, "turn_limit": 4}


def experiment(clients: int, rounds: int) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "clients",
            "rounds": rounds,
            "model": {"name": "nano", "device": "cpu", "threads": 1},
            "clients": {f"c{number:04d}": {"worlds": [WORLD]} for number in range(clients)},
            "start": {"name": "demonstrations", "tasks": 1},
            "exploration": {"tasks": 1},
            "evaluation": {"tasks": 1, "tasks_per_round": 0, "test_tasks": 0},
            "learner": {"name": "imitation", "epochs": 1, "batch_size": 2, "learning_rate": 1e-3},
            "policy": {"name": "transformer", "slots": 64, "reply_tokens": 12},
        }
    )


def largest_memory() -> int:
    """Bytes. Not from getrusage, which also counts what the parent had when it started this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


class Costs:
    """A tracker that reads memory and CPU time where rounds end."""

    def __init__(self) -> None:
        self.before = 0
        self.after: list[int] = []
        self.seconds: list[float] = []
        self._began = 0.0

    def record(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.before = largest_memory()
        elif isinstance(event, RoundStarted):
            self._began = time.process_time()
        elif isinstance(event, RoundFinished):
            self.after.append(largest_memory())
            self.seconds.append(time.process_time() - self._began)


def one(clients: int, rounds: int) -> dict[str, Any]:
    costs = Costs()
    with TemporaryDirectory() as folder:
        result = fedse.run(experiment(clients, rounds), folder, trackers=[costs])
        run = RunFolder.existing(result.folder)
        seconds = [float((run.report(number) or {})["seconds"]) for number in range(1, rounds + 1)]
        return {
            "clients": clients,
            "first_round_cpu_seconds": round(costs.seconds[0], 2),
            "round_cpu_seconds": round(statistics.median(costs.seconds[1:]), 2),
            "round_seconds": statistics.median(seconds[1:]),
            "memory_before": costs.before,
            "memory": costs.after[-1],
            "disk_per_client": run.size() // clients,
            "update": 4 * result.adapter.size,
        }


def draw(results: list[dict[str, Any]], target: Path) -> None:
    from matplotlib.figure import Figure

    counts = [row["clients"] for row in results]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    memory, seconds = figure.subplots(1, 2)
    memory.plot(
        counts, [row["memory"] / 1e6 for row in results], marker="o", color="#3366cc", label="at the end of the run"
    )
    memory.plot(
        counts,
        [row["memory_before"] / 1e6 for row in results],
        marker=".",
        linestyle=":",
        color="#3366cc",
        label="before the first round",
    )
    memory.set(xscale="log", xlabel="clients", ylabel="MB", title="largest resident memory")
    memory.set_ylim(0, 1.3 * max(row["memory"] for row in results) / 1e6)
    memory.legend(frameon=False, fontsize=8)
    largest = results[-1]
    seconds.plot(counts, [row["round_cpu_seconds"] for row in results], marker="o", color="#dc6900", label="measured")
    straight = [largest["round_cpu_seconds"] * count / largest["clients"] for count in counts]
    seconds.plot(
        counts, straight, linestyle=":", color="#888888", label=f"linear, through {largest['clients']:,} clients"
    )
    seconds.set(xscale="log", yscale="log", xlabel="clients", ylabel="seconds", title="CPU time of a round, one thread")
    seconds.legend(frameon=False, fontsize=8)
    for axis in (memory, seconds):
        axis.spines[["top", "right"]].set_visible(False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a JSON file; without it the numbers are only printed")
    parser.add_argument("--picture", type=Path, help="a PNG file")
    parser.add_argument("--one", action="store_true", help="this process runs the one number that is given")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.clients[0], options.rounds)))
        return
    results: list[dict[str, Any]] = []
    for count in sorted(options.clients):
        line = [sys.executable, __file__, "--one", "--clients", str(count), "--rounds", str(options.rounds)]
        results.append(json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
        # After every number, as the larger ones take long.
        if options.output:
            write(results, options.rounds, options.output)
        if options.picture:
            draw(results, options.picture)


def write(results: list[dict[str, Any]], rounds: int, target: Path) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    found = {"machine": machine, "threads": 1, "versions": versions, "rounds": rounds, "results": results}
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
