"""The fence of a hub: an nginx that lets sites in and nobody else, started and ended with the hub."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedse.apps.flower_server import HubFailed, wait_until_free
from fedse.apps.hub_folder import HubFolder
from fedse.apps.hub_options import HubOptions
from fedse.apps.nginx_file import nginx_configuration
from fedse.errors import BadInput
from fedse.storage import atomic

Say = Callable[[str], None]
START = 30.0
"""Most seconds that nginx may take to start."""
REACHED = 5.0
"""Most seconds in which whatever stands at the hub's address is reached."""


@contextmanager
def fence(hub: HubFolder, say: Say) -> Iterator[None]:
    """Open to the sites while the block lasts. A hub whose file says `fence: false` is guarded by somebody else."""
    if not hub.options.fence:
        yield
        return
    nginx = find_nginx()
    if nginx is None:
        raise BadInput(
            "nginx is not installed, and the hub needs it as its fence: install it (Debian: apt-get install nginx-light). "
            f"{_without_nginx(hub.options)}"
        )
    # Anew each time: what is in hub.yaml holds, and a hub that an earlier version made gets the fence of this one.
    (hub.path / "nginx-temp").mkdir(exist_ok=True)
    atomic.write_text(hub.path / "nginx.conf", nginx_configuration(hub.path, hub.options))
    stop_earlier(hub.path)
    host, port = hub.options.listens_at
    _check_address(host)
    wait_until_free(port, say, host)
    line = [nginx, "-p", str(hub.path), "-c", str(hub.path / "nginx.conf"), "-g", "daemon off;"]
    log = hub.path / "nginx-error.log"
    with log.open("ab") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "fedse.apps.launch", "fence", str(os.getpid()), "0", *line],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_open(keeper, host, port, log)
        yield
    finally:
        keeper.terminate()
        with suppress(subprocess.TimeoutExpired):
            keeper.wait(timeout=10)
        keeper.kill()
        keeper.wait()
        stop_earlier(hub.path)


def _without_nginx(options: HubOptions) -> str:
    if options.for_this_machine:
        return (
            f"To try it out on this machine without nginx, write `fence: false` and `port: {options.listens_at[1]}` into "
            "hub.yaml; sites, and anybody else with an account on this machine, then reach Flower's server itself."
        )
    return (
        f"With `fence: false` in hub.yaml the hub starts none; then something else must listen at {options.address}, and "
        f"pass on to 127.0.0.1:{options.port} what nginx.conf does and nothing more."
    )


def warn_if_out_of_reach(hub: HubFolder, say: Say) -> None:
    """Of a hub without a fence at whose address nobody listens: its sites would knock there for ever."""
    if hub.options.fence:
        return
    host, port = hub.options.address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=REACHED).close()
    except (OSError, UnicodeError) as error:  # A name that cannot be one is found out here at the latest.
        own = (
            f"write `port: {port}` into hub.yaml"
            if hub.options.for_this_machine
            else "write `fence: true` into hub.yaml"
        )
        say(
            f"WARNING: nothing answers at {hub.options.address}, where the sites look for this hub ({error}). With `fence: "
            f"false` the hub starts no nginx there, and Flower's server listens at 127.0.0.1:{hub.options.port}: {own}, or "
            "start what passes on from one to the other."
        )


def find_nginx() -> str | None:
    # Often in a folder that only the path of an administrator has.
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def stop_earlier(path: Path) -> None:
    """End the nginx of this folder that a killed hub, or somebody by hand, has left."""
    if (pid := _running(path)) is not None:
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 10
        while _running(path) == pid and time.monotonic() < until:
            time.sleep(0.1)


def reload(path: Path) -> bool:
    """Let a running fence read its certificate again; whether there is one."""
    pid = _running(path)
    if pid is not None:
        os.kill(pid, signal.SIGHUP)
    return pid is not None


def _running(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        pid = int((path / "nginx.pid").read_text())
        # The number may belong to another process by now.
        if str(path / "nginx.conf").encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def _check_address(host: str) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            raise BadInput(
                f"this machine does not have the address {host}: write `listen:` with one that it has into hub.yaml, or "
                "0.0.0.0 for all of them."
            ) from error


def _wait_until_open(keeper: subprocess.Popen[bytes], host: str, port: int, log: Path) -> None:
    until = time.monotonic() + START
    while True:
        with suppress(OSError), socket.create_connection((host, port), timeout=2):
            return
        if keeper.poll() is not None or time.monotonic() > until:
            raise HubFailed(f"nginx did not start; {log} says why.")
        time.sleep(0.1)
