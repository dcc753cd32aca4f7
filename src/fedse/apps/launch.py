"""Starts one of Flower's long-running commands so that it ends when it should: with its parent, and with its own work.

`python -m fedse.apps.launch superlink|supernode|fence PARENT EARLIER ARGUMENTS...`, where EARLIER is the number under which
an earlier SuperNode of this site was known, or 0. The arguments of a fence are the whole command of its nginx.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from fedse.engines.flower.settings import prepare

ENDED = 75
"""Exit code when the command's own work is over although its process would stay: start it again."""

TOLD = "fedse tells the site: "
"""Begins a line of the output that whoever started the command passes on."""
AT_ONCE = 5.0
"""Seconds: what ends sooner would end again."""


def end_with(process: int) -> None:
    """End this process at once when another one is gone. Left to itself, Flower goes on trying for a while."""

    def watch() -> None:
        while True:
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                os._exit(1)
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()


def keep(command: list[str], parent: int) -> int:
    """Run a command as long as another process is there; started again when it ends later than at once."""
    # Raised where the loop is, so that the command is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        began = time.monotonic()
        process = subprocess.Popen(command)
        try:
            while process.poll() is None:
                os.kill(parent, 0)
                time.sleep(0.2)
        except ProcessLookupError:
            return 1
        finally:
            process.terminate()
            code = process.wait()
        if time.monotonic() - began < AT_ONCE:
            return code


def _sign_off(arguments: list[str], node: int) -> None:
    from fedse.apps.flower_calls import sign_off

    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    files = Path(given["--root-certificates"]), Path(given["--auth-supernode-private-key"])
    sign_off(given["--superlink"], *files, node)


def _tell(sentence: str) -> None:
    sys.stdout.write(f"{TOLD}{sentence}\n")
    sys.stdout.flush()


def main() -> None:
    command, parent, earlier, *arguments = sys.argv[1:]
    if command == "fence":
        sys.exit(keep(arguments, int(parent)))
    prepare(f"fedse {'hub' if command == 'superlink' else 'site'}")
    end_with(int(parent))
    sys.argv = [f"flower-{command}", *arguments]
    if command == "superlink":
        from flwr.superlink.cli import flower_superlink

        flower_superlink()
    else:
        from flwr.supernode.cli import flower_supernode

        from fedse.apps.own_bundle import guard

        guard(_tell)
        if int(earlier):
            _sign_off(arguments, int(earlier))
        # When the server answers with an error, its loop ends and a helper thread keeps the process alive, cut off for good.
        flower_supernode()
    os._exit(ENDED)


if __name__ == "__main__":
    main()
