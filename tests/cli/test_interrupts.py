"""An interrupt is not lost, and nothing that goes on in the background keeps an interrupted command alive."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

FREED = """
import signal, time
import sys
from fedse.cli.interrupts import never_lose_one, tidy_when_terminated

signal.signal(signal.SIGINT, signal.default_int_handler)
never_lose_one()

class Freed:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))
        time.sleep(0)

try:
    with tidy_when_terminated():
        Freed()
        time.sleep(20)
except (KeyboardInterrupt, SystemExit):
    print("heard")
"""

HELD = """
import json, threading, typer
from fedse import cli

lock = threading.Lock()

class Closes:
    lock = lock

    def __del__(self):
        with self.lock:
            pass

@cli.app.command("hang")
def hang():
    json.kept = Closes()  # In a module that no thread is busy in, so that it is freed in the end.
    threading.Thread(target=lambda: (lock.acquire(), threading.Event().wait()), daemon=True).start()
    while not lock.locked():
        pass
    print("interrupted")
    raise typer.Exit(int(code))

import sys
code = sys.argv[1]
sys.argv = ["fedse", "hang"]
cli.main()
"""


SIGNALS = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])


@pytest.mark.slow
@SIGNALS
def test_a_signal_while_an_object_is_freed_is_heard(sent: signal.Signals) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", FREED, str(int(sent))], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("heard\n", "")
    assert time.monotonic() - began < 15


@pytest.mark.slow
@SIGNALS
def test_a_lock_that_a_thread_holds_does_not_keep_an_interrupted_command_alive(sent: signal.Signals) -> None:
    code = 128 + sent
    done = subprocess.run([sys.executable, "-c", HELD, str(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "interrupted\n", "")
