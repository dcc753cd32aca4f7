"""How long it takes until a command prints its first line: `python benchmarks/first_line.py --repeats 5`.

Each command is a process of its own, asked several times; the first time, in which files are read from disk and bytecode is
written, does not count. Beside the wall clock stands the processor's time of that process, which other programs on the same
cores change less. What prints its first line and then works for long is stopped there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SMALL = {
    "name": "small",
    "rounds": 1,
    "model": {"name": "table", "rows": 512},
    "policy": "table",
    "learner": "table",
    "clients": {"east": {"worlds": ["maze"]}},
    "exploration": {"tasks": 2},
    "evaluation": {"tasks": 2, "test_tasks": 2},
}
COMMANDS = (
    "--help",
    "--version",
    f"run {ROOT / 'recipes/nano.yaml'}",
    "demo",
    f"sweep {ROOT / 'recipes/sweeps/smollm2.yaml'}",
    f"profile {ROOT / 'recipes/nano.yaml'}",
    "show runs/small",
    "eval runs/small",
    "explored runs/small",
    "generations runs/small",
    "report runs/small --output REPORT",
    "view runs/small",
    "worlds",
    "plugins",
    "aggregators",
    "models",
    "doctor",
    "play maze",
)


def first_line(command: Sequence[str], folder: str) -> tuple[float, float, str]:
    """Wall seconds and processor seconds until it came, and the line."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "fedse", *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    line = next((line.strip() for line in process.stdout if line.strip()), "")
    taken = time.perf_counter() - began
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    process.terminate()
    process.communicate()
    return taken, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), line


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "small.yaml").write_text(json.dumps(SMALL))
        subprocess.run(
            [sys.executable, "-m", "fedse", "run", "small.yaml"], cwd=folder, check=True, capture_output=True
        )
        for number, command in enumerate(COMMANDS):
            words = command.replace("REPORT", f"{number}.html").split()
            asked = [first_line(words, folder) for _ in range(given.repeats + 1)][1:]
            name = command.replace(f"{ROOT}/", "")
            found[name] = {
                "seconds": round(min(wall for wall, _, _ in asked), 2),
                "processor_seconds": round(min(own for _, own, _ in asked), 2),
                "line": asked[-1][2],
            }
            print(f"{name}: {found[name]['seconds']} s", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
