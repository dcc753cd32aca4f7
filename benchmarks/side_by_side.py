"""Several runs of one experiment on one GPU at the same time, as tables of results are made: how long their rounds take.

python benchmarks/side_by_side.py recipes/smollm2.yaml --runs 4 --rounds 5 --out side_by_side.json
python benchmarks/side_by_side.py recipes/smollm2.yaml --runs 4 --keep runs     whole runs, which are kept

The runs differ in their seeds, from 1 on. Start NVIDIA's MPS before (`nvidia-cuda-mps-control -d`), or runs take turns on
the card. Memory is what `nvidia-smi` says is taken on the card, read once a second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedse.runs.reading import RunView

MEMORY = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")


def begun(file: Path, seed: int, settings: Sequence[str], folder: Path, log: Any) -> subprocess.Popen[bytes]:
    changes = [f"--set={change}" for change in (f"name=seed_{seed}", f"seed={seed}", *settings)]
    command = [sys.executable, "-m", "fedse", "run", str(file), "--runs", str(folder), *changes]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def memory_taken() -> float:
    """GiB of the first card; 0 where there is none, or none that tells."""
    try:
        told = subprocess.run(MEMORY, capture_output=True, text=True, check=True).stdout
        return float(told.split()[0]) / 1024
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0.0


def measured(file: Path, runs: int, settings: Sequence[str], folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    if there := [path for path in folder.glob("seed_*") if path.is_dir()]:
        raise SystemExit(f"{there[0]} is there already, and would be resumed: choose another folder for the runs.")
    before, most, begun_at = memory_taken(), 0.0, time.monotonic()
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as until_the_end:
        until_the_end.callback(ended, processes)
        for seed in range(1, runs + 1):
            log = until_the_end.enter_context((folder / f"seed_{seed}.log").open("w"))
            processes.append(begun(file, seed, settings, folder, log))
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            most = max(most, memory_taken())
            time.sleep(1)
            codes = [process.poll() for process in processes]
    took = time.monotonic() - begun_at
    for seed, code in enumerate(codes, start=1):
        if code:
            raise SystemExit(f"seed {seed} ended with {code}:\n{(folder / f'seed_{seed}.log').read_text()}")
    seconds = {f"seed_{seed}": rounds_of(folder / f"seed_{seed}") for seed in range(1, runs + 1)}
    if not all(seconds.values()):
        raise SystemExit(
            f"the runs of {file} have no rounds, so there is nothing to time: set `rounds`, or another method."
        )
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "runs": runs,
        "settings": list(settings),
        "seconds": round(took, 1),
        "seconds_of_rounds": seconds,
        "first_round": max(each[0] for each in seconds.values()),
        "slowest_run": round(max(map(sum, seconds.values())), 1),
        "gib_taken_before": round(before, 1),
        "gib_taken": round(most, 1),
    }


def ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """After an error here nobody else would end them, and what they write would be in the way of removing their folder."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def rounds_of(run: Path) -> list[float]:
    view = RunView.existing(run)
    reports = (view.report(number) for number in range(1, (view.last_round() or 0) + 1))
    return [round(report["seconds"], 1) for report in reports if report]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path)
    options.add_argument("--runs", type=int, default=4)
    options.add_argument("--rounds", type=int, help="play so many rounds, at least one, whatever the file says")
    options.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key; may be repeated"
    )
    options.add_argument("--keep", type=Path, help="a folder for the runs, which are removed otherwise")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    if given.rounds is not None and given.rounds < 1:
        options.error("--rounds: at least one round is timed.")
    if given.runs < 1:
        options.error("--runs: at least one run is timed.")
    if own := [change for change in given.set if change.partition("=")[0] in ("name", "seed")]:
        options.error(f"--set {own[0]}: runs are told apart by their names and seeds, which are given here.")
    settings = [*given.set, *([f"rounds={given.rounds}"] if given.rounds else [])]
    with tempfile.TemporaryDirectory(prefix="fedse-side-by-side-") as temporary:
        found = measured(given.file, given.runs, settings, given.keep or Path(temporary))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
