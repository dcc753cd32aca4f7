"""Run an experiment and kill the process with SIGKILL at its n-th operation on the file system.

usage: killed_at.py FILE N RUNS [N RUNS ...]      (N = 0: run to the end)

Every run is in a process of its own, forked from this one, which has imported fedse. For each of them it prints how the
process ended; one that ran to the end prints the adapter's digest and how many operations there were before that.
"""

from __future__ import annotations

import os
import signal
import sys

import fedse
from fedse.experiments.options import load_experiment

EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def run(file: str, at: int, runs: str) -> None:
    experiment = load_experiment(file)
    operations = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal operations
        written = (
            event == "open" and str(arguments[0]).startswith(runs) and str(arguments[1] or "").startswith(("w", "a"))
        )
        if written or event in EVENTS:
            operations += 1
            if operations == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    digest = fedse.run(experiment, runs).adapter.digest()
    sys.stdout.write(f"{digest} {operations} ")


def main() -> None:
    for name in ("fedse.experiments.running", "matplotlib.figure"):
        __import__(name)
    file, *rest = sys.argv[1:]
    for at, runs in zip(rest[::2], rest[1::2], strict=True):
        child = os.fork()
        if child == 0:
            run(file, int(at), runs)
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
