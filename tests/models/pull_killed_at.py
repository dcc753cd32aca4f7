"""Pull the forged model and kill the process with SIGKILL at its first, second, ... operation on the file system.

usage: pull_killed_at.py CACHE [--force]      (prints at how many operations it was killed)

After each kill the model must be whole or missing, and the next pull must leave the model, the lock and nothing else. With
--force there is a model before, and whole means the old one or the new one, never a part of either.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from forged_model import FILES, Forged, wheel_bytes

from fedse.models.card import Presence
from fedse.models.pulling import pull

OLD = FILES | {f"old-{number}" for number in range(5)}
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def in_child(action: Callable[[], object]) -> int:
    """The exit status of a process that does this."""
    child = os.fork()
    if child == 0:
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at(operation: int, cache: str) -> None:
    done = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal done
        written = event == "open" and str(arguments[0]).startswith(cache) and str(arguments[1] or "").startswith("w")
        if written or event in EVENTS:
            done += 1
            if done == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def begin(folder: Path, force: bool) -> None:
    """A cache as an earlier interrupted pull leaves it: with a whole wheel, so that no pull needs an index."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / ".forged.whl").write_bytes(wheel_bytes())
    if force:
        (folder / "forged").mkdir()
        for name in OLD:
            (folder / "forged" / name).write_text("old")


def main() -> None:
    cache = os.environ["FEDSE_CACHE"] = sys.argv[1]
    force = "--force" in sys.argv
    folder = Path(cache) / "models"
    for operation in range(1, 1000):
        begin(folder, force)

        def killed(operation: int = operation) -> None:
            kill_at(operation, cache)
            pull(Forged.card, force=force)

        status = in_child(killed)
        assert status in (0, -signal.SIGKILL), status
        if Forged.card.presence() is Presence.PRESENT:
            found = {file.name for file in (folder / "forged").iterdir()}
            assert found == FILES or (force and found == OLD), (operation, found)
        assert in_child(lambda: pull(Forged.card)) == 0
        assert Forged.card.presence() is Presence.PRESENT
        assert {item.name for item in folder.iterdir()} == {"forged", ".forged.lock"}, operation
        if status == 0:
            sys.stdout.write(f"{operation - 1}\n")
            return


if __name__ == "__main__":
    main()
