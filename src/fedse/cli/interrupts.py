"""Ctrl-C ends a command, whatever it is doing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

CODE = 130
"""What a command that was interrupted leaves with."""


def never_lose_one() -> None:
    """Python only mentions an interrupt that arrives while an object is being freed, and goes on: send it once more."""
    mention = sys.unraisablehook

    def again(what: Any) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            mention(what)
            return
        # A little later: raised in here, it would be lost in the same way.
        later = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        later.daemon = True
        later.start()

    sys.unraisablehook = again


def leave() -> None:
    """End the process without freeing everything first.

    That takes its time on a busy machine, and threads that wait for a server may hold a lock it needs. Whatever a run has
    written is safe, as it is when the process is killed.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # Whoever read it may be gone.
            stream.flush()
    os._exit(CODE)
