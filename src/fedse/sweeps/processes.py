"""Works off the cells of a sweep, each in a process of its own, some at a time. Whatever stops it, cells can go on later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import IO

from fedse.errors import GpuFull
from fedse.storage import atomic
from fedse.sweeps.grid import Cell

_PATIENCE = 60.0
"""Seconds an interrupted run has to reach the end of what it is doing. Ended by force it loses no complete round."""
_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


_CROWDED = "the GPU has no room for it beside the others; it is resumed later, with {} at a time from now on"


class State(StrEnum):
    WAITING = "waiting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """What became of a cell in this call."""

    state: State
    why: str = ""
    seconds: float = 0.0


@dataclass
class _Running:
    cell: Cell
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    began: float = field(default_factory=time.monotonic)


def work_off(
    cells: Sequence[Cell],
    processes: int = 1,
    max_minutes: float | None = None,
    finished: Callable[[Cell, Result], None] = lambda *_: None,
) -> dict[str, Result]:
    """Run what is not complete. An interrupt, or the end of the time, stops all cells where they can go on. Where a GPU
    does not hold as many as were asked for, fewer are run at a time."""
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    results = {cell.name: Result(State.DONE if cell.is_complete() else State.WAITING) for cell in cells}
    waiting = [cell for cell in cells if results[cell.name].state is State.WAITING]
    running: list[_Running] = []
    at_once = processes
    with _terminate_as_interrupt():
        try:
            while running or (waiting and not _over(deadline)):
                while waiting and len(running) < at_once and not _over(deadline):
                    running.append(_start(waiting.pop(0), processes, deadline))
                together = len(running)
                ended = [item for item in running if item.process.poll() is not None]
                running = [item for item in running if item not in ended]
                for item in ended:
                    result = _result(item)
                    if item.process.returncode == GpuFull.exit_code and together > 1:
                        at_once = max(1, min(at_once, len(running)))
                        result = Result(State.WAITING, _CROWDED.format(at_once), result.seconds)
                        waiting.append(item.cell)
                    results[item.cell.name] = result
                    finished(item.cell, result)
                time.sleep(0.05)
        except KeyboardInterrupt:
            for item in running:
                item.process.send_signal(signal.SIGINT)
            for item in running:
                _await(item)
                results[item.cell.name] = Result(State.STOPPED, "interrupted", time.monotonic() - item.began)
            raise Interrupted(results) from None
        finally:
            for item in running:
                item.log.close()
                if item.process.poll() is None:
                    item.process.kill()
    return results


class Interrupted(Exception):
    """The user stopped the sweep; nothing complete is lost."""

    def __init__(self, results: dict[str, Result]) -> None:
        super().__init__("interrupted")
        self.results = results


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _start(cell: Cell, processes: int, deadline: float | None) -> _Running:
    notes = cell.folder.parent / ".sweep"
    file = notes / f"{cell.name}.yaml"
    atomic.write_text(file, cell.experiment.to_yaml())
    line = [sys.executable, "-m", "fedse", "run", str(file), "--runs", str(cell.folder.parent)]
    if deadline is not None:
        line += ["--max-minutes", f"{max(0.0, deadline - time.monotonic()) / 60:.4f}"]
    log = log_of(cell).open("wb")
    # A session of its own: the terminal's Ctrl-C reaches this process alone, which passes it on once.
    process = subprocess.Popen(line, stdout=log, stderr=log, env=_environment(processes), start_new_session=True)
    return _Running(cell, process, log)


def log_of(cell: Cell) -> Path:
    """What the run printed."""
    return cell.folder.parent / ".sweep" / f"{cell.name}.log"


def _environment(processes: int) -> dict[str, str]:
    """Processes that share a machine share its cores: more threads than cores wait for each other."""
    share = max(1, (os.cpu_count() or 1) // processes)
    limits = {name: str(min(share, int(os.environ.get(name) or share))) for name in _THREAD_LIMITS}
    return {**os.environ, **limits}


def _result(item: _Running) -> Result:
    item.log.close()
    seconds = time.monotonic() - item.began
    if item.process.returncode == 0:
        done = item.cell.is_complete()
        return Result(State.DONE, "", seconds) if done else Result(State.STOPPED, "the time was over", seconds)
    lines = [line for line in log_of(item.cell).read_text(errors="replace").splitlines() if line.strip()]
    said = [line.removeprefix("fedse: ") for line in lines if line.startswith("fedse: ")]
    ended = f"ended by signal {-item.process.returncode}" if item.process.returncode < 0 else "no message"
    return Result(State.FAILED, (said or lines or [ended])[-1], seconds)


def _await(item: _Running) -> None:
    try:
        item.process.wait(_PATIENCE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        item.process.kill()
        item.process.wait()


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """`kill` without a number stops a sweep as Ctrl-C does, instead of leaving its runs alone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
