"""Run `fedse run` and kill the process with SIGKILL at its n-th operation on the file system.

usage: killed_at.py N FILE RUNS      (N = 0: run to the end and print how many operations there were)
"""

from __future__ import annotations

import os
import signal
import sys

import fedse
from fedse.experiments.options import load_experiment

EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def main() -> None:
    at, file, runs = int(sys.argv[1]), sys.argv[2], sys.argv[3]
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
    sys.stdout.write(f"{digest} {operations}\n")


if __name__ == "__main__":
    main()
