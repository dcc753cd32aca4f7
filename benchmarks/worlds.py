"""Steps per second of each world on one core, beside the wrappers they stand in for.

python benchmarks/worlds.py
"""

from __future__ import annotations

import json
import os
import platform

from rich.console import Console
from rich.table import Table

from fedse.plugins import resolve
from fedse.worlds.speed import steps_per_second

ORIGINAL_WRAPPERS = {"maze": 58_000, "wordle": 950, "textcraft": 19_000, "webshop": 41, "babyai": 260}
"""Steps per second of the wrappers in AgentGym, measured on a core of a two-core aarch64 machine."""
MODES = ("clean", "original")


def main() -> None:
    measured = {
        name: {mode: round(steps_per_second(resolve("world", name)(mode=mode), seconds=1.0)) for mode in MODES}
        for name in ORIGINAL_WRAPPERS
    }
    table = Table("world", "mode", "steps/s", "original wrapper", "times")
    for name, by_mode in measured.items():
        for mode, speed in by_mode.items():
            wrapper = ORIGINAL_WRAPPERS[name]
            table.add_row(name, mode, f"{speed:,}", f"{wrapper:,}", f"{speed / wrapper:.1f}")
    Console().print(table)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, "steps_per_second": measured, "original_wrappers": ORIGINAL_WRAPPERS}))


if __name__ == "__main__":
    main()
