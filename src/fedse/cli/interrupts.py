"""Ctrl-C ends a command, whatever it is doing; so does SIGTERM, for commands with something to tidy up."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

CODE = 130
"""What a command that was interrupted leaves with."""


TERMINATED = 143
"""The same for SIGTERM."""


@contextmanager
def tidy_when_terminated() -> Iterator[None]:
    """Leave by way of every `finally` when the process is told to end."""

    def leave(*_: Any) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def never_lose_one() -> None:
    """Python only mentions a signal that arrives while an object is being freed, and goes on: send it once more."""
    mention = sys.unraisablehook

    def again(what: Any) -> None:
        lost = _lost(what.exc_value)
        if lost is None:
            mention(what)
            return
        # A little later: raised in here, it would be lost in the same way.
        later = threading.Timer(0.05, os.kill, (os.getpid(), lost))
        later.daemon = True
        later.start()

    sys.unraisablehook = again


def _lost(raised: BaseException | None) -> signal.Signals | None:
    """The signal that an exception stands for."""
    if isinstance(raised, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if isinstance(raised, SystemExit) and raised.code == TERMINATED else None


def leave(code: int) -> None:
    """End the process without freeing everything first.

    That takes its time on a busy machine, and threads that wait for a server may hold a lock it needs. Whatever a run has
    written is safe, as it is when the process is killed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # Whoever read it may be gone.
            stream.flush()
    os._exit(code)
