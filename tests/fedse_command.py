"""`fedse` as a command of its own process, without the second that importing it takes.

One process imports fedse and waits. For every command it forks a child with a folder, an environment, an exit code and an
output of its own, which ends as any interpreter does. Tests about starting, imports or signals start `python -m fedse`.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

OFTEN_NEEDED = ("matplotlib.backends.backend_agg", "fedse.policies.table", "fedse.learners.table", "fedse.worlds.maze")


def command(
    *arguments: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    line = ["fedse", *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="fedse-command-") as place:
        output, errors = Path(place, "output"), Path(place, "errors")
        order = {
            "line": line,
            "folder": str(folder or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "output": str(output),
            "errors": str(errors),
        }
        code = _answer(json.dumps(order))
        return subprocess.CompletedProcess(line, code, output.read_text(), errors.read_text())


def _answer(order: str) -> int:
    waiting = _waiting_process()
    try:
        asked, answers = _pipes(waiting)
        asked.write(order + "\n")
        asked.flush()
        return int(answers.readline())
    except (
        BaseException
    ):  # A test that ran out of time leaves its command behind, and nobody may read that one's answer.
        waiting.kill()
        _waiting_process.cache_clear()
        raise


@cache
def _waiting_process() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin and process.stdout
    return process.stdin, process.stdout


def _next_command() -> dict[str, Any] | None:
    """Returns in a child of its own for every order, and in this process when there are no more."""
    for name in ("fedse.cli", "fedse.experiments.running", *OFTEN_NEEDED):
        __import__(name)
    gc.freeze()  # Collecting what all children share would copy it for each of them.
    for order in sys.stdin:
        child = os.fork()
        if child == 0:
            found: dict[str, Any] = json.loads(order)
            return found
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201
    return None


def _become(command: dict[str, Any]) -> None:
    """What the interpreter does with `python -m fedse`."""
    for number, path in enumerate((os.devnull, command["output"], command["errors"])):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    ours = {str(Path(__file__).parent), *_paths(os.environ)}
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.path[:] = [command["folder"], *_paths(os.environ), *(path for path in sys.path if path not in ours)]
    sys.argv = command["line"]
    runpy.run_module("fedse", run_name="__main__", alter_sys=True)


def _paths(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]


if __name__ == "__main__" and (found := _next_command()):
    _become(found)
