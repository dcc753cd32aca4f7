"""Flower's SuperLink on this machine: started, looked after and ended by the hub."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedse.apps.hub_folder import HubFolder, write_flower_configuration
from fedse.engines.flower.settings import environment
from fedse.errors import BadInput, FedseError

Say = Callable[[str], None]
START = 120.0
"""Most seconds that Flower's server may take to start, or an old one to end."""
LOOK = 2.0
"""Seconds between two looks whether it answers."""
MENTIONED_AFTER, GIVEN_UP_AFTER = 8.0, 30.0
"""Seconds of silence after which it is spoken of, and after which the server is taken for lost."""


class HubFailed(FedseError):
    """Flower's server or the run in it ended without a result."""


class ServerLost(HubFailed):
    """Flower's server has ended, or no longer answers."""


@contextmanager
def flower_server(hub: HubFolder, say: Say) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers."""
    wait_until_free(hub.options.port, say)
    command = [
        *(sys.executable, "-m", "fedse.apps.launch", "superlink", str(os.getpid()), "0"),
        *("--host", "127.0.0.1", "--port", str(hub.options.port)),
        *_protection(hub),
        "--disable-runtime-dependency-installation",
        # So that sites are known again after a restart.
        *("--database", str(hub.home / "state.db")),
    ]
    hub.home.mkdir(parents=True, exist_ok=True)
    # Anew each time, because hub.yaml may have another port by now.
    write_flower_configuration(hub.path, hub.options)
    with log_of(hub).open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(environment(hub.home)))
    try:
        _wait_until_up(hub, process)
        yield process
    except ServerLost:
        # Stopped, it would not hear that it is asked to end.
        process.kill()
        raise
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        process.kill()
        process.wait()


class Silence:
    """Notices that a server no longer answers, though its process may be there: stopped, or hopelessly slow."""

    def __init__(self, answers: Callable[[], bool], say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._answers, self._say, self._clock = answers, say, clock
        self._heard = self._looked = clock()
        self._told = False

    def look(self) -> None:
        if self._clock() - self._looked < LOOK:
            return
        if self._answers():
            if self._told:
                self._say("Flower's server answers again")
            self._told, self._heard = False, self._clock()
        silent = self._clock() - self._heard
        self._looked = self._clock()
        if silent >= GIVEN_UP_AFTER:
            raise ServerLost(f"Flower's server has not answered for {silent:.0f} s.")
        if silent >= MENTIONED_AFTER and not self._told:
            self._told = True
            self._say(
                f"Flower's server has not answered for {silent:.0f} s; it is started anew after {GIVEN_UP_AFTER:.0f} s"
            )


def _protection(hub: HubFolder) -> Iterator[str]:
    if hub.options.insecure:
        yield "--insecure"
        return
    yield from ("--ssl-ca-certfile", str(hub.certificate("ca.crt")))
    yield from ("--ssl-certfile", str(hub.certificate("server.crt")))
    yield from ("--ssl-keyfile", str(hub.certificate("server.key")))
    yield "--enable-supernode-auth"


def answers(hub: HubFolder) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", hub.options.port), timeout=5) as plain:
            if hub.options.insecure:
                plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return bool(plain.recv(1))
            context = ssl.create_default_context(cafile=str(hub.certificate("ca.crt")))
            with context.wrap_socket(plain, server_hostname="localhost"):
                return True
    except OSError:
        return False


def ended(hub: HubFolder) -> bool:
    """Whether the run that was submitted last is over."""
    from fedse.apps.flower_calls import last_run_has_ended

    authority = None if hub.options.insecure else hub.certificate("ca.crt")
    return last_run_has_ended(f"127.0.0.1:{hub.options.port}", authority)


def wait_until_free(port: int, say: Say, address: str = "127.0.0.1") -> None:
    """A hub that was killed takes its processes along, but not at once."""
    until, told = time.monotonic() + 30, False
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((address, port))
                return
        if time.monotonic() > until:
            raise BadInput(
                f"port {port} of this machine is taken: stop what uses it, or write another one into hub.yaml."
            )
        if not told:
            say(f"port {port} is still taken: waiting for it")
            told = True
        time.sleep(0.5)


def _wait_until_up(hub: HubFolder, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START
    while not answers(hub):
        if process.poll() is not None or time.monotonic() > until:
            raise HubFailed(f"Flower's server did not start; {log_of(hub)} says why.")
        time.sleep(0.3)


def log_of(hub: HubFolder) -> Path:
    return hub.home / "superlink.log"
