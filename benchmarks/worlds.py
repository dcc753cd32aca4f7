"""Steps per second of each world on one core, beside the wrappers they stand in for; and how long each takes to begin.

python benchmarks/worlds.py

Beginning is processor time of a process of its own, from the name of a world to its first observation: importing what it
needs, listing its training tasks, making the first of them. Every worker process with worlds and every process that
demonstrates does so once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from rich.console import Console
from rich.table import Table

from fedse.plugins import resolve
from fedse.worlds.speed import steps_per_second

ORIGINAL_WRAPPERS = {"maze": 58_000, "wordle": 950, "textcraft": 19_000, "webshop": 41, "babyai": 260}
"""Steps per second of the wrappers in AgentGym, measured on a core of a two-core aarch64 machine."""
MODES = ("clean", "original")
BEGINNINGS = 3


def begun(name: str) -> float:
    """Seconds that this process takes to begin with a world that it has not seen."""
    before = time.process_time()
    world = resolve("world", name)()
    world.reset(options={"task": world.tasks("train")[0].id})
    return time.process_time() - before


def seconds_to_begin() -> dict[str, float]:
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
        return {name: round(median(pool.map(begun, [name] * BEGINNINGS)), 2) for name in ORIGINAL_WRAPPERS}


def main() -> None:
    beginnings = seconds_to_begin()
    measured = {
        name: {mode: round(steps_per_second(resolve("world", name)(mode=mode), seconds=1.0)) for mode in MODES}
        for name in ORIGINAL_WRAPPERS
    }
    table = Table("world", "mode", "steps/s", "original wrapper", "times", "seconds to begin")
    for name, by_mode in measured.items():
        for mode, speed in by_mode.items():
            wrapper = ORIGINAL_WRAPPERS[name]
            begins = f"{beginnings[name]:.2f}" if mode == "clean" else ""
            table.add_row(name, mode, f"{speed:,}", f"{wrapper:,}", f"{speed / wrapper:.1f}", begins)
    Console().print(table)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    found = {"steps_per_second": measured, "original_wrappers": ORIGINAL_WRAPPERS, "seconds_to_begin": beginnings}
    print(json.dumps({"machine": machine, **found}))


if __name__ == "__main__":
    main()
