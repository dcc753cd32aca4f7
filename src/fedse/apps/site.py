"""`fedse site run`: the worker of a site, and Flower's SuperNode beside it, started again when it ends."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from fedse.apps.client_app import WORKER
from fedse.apps.launch import TOLD
from fedse.apps.private import socket_folder
from fedse.apps.site_file import Site
from fedse.apps.site_sums import check_keys
from fedse.apps.worker import Worker
from fedse.engines.flower.settings import environment, prepare
from fedse.engines.flower.wire import SITE
from fedse.errors import BadInput, FedseError

Say = Callable[[str], None]
AGAIN = 2.0
"""Seconds between two tries to reach the hub."""
SILENT_FIRST, SILENT_LAST = 10.0, 600.0
"""Seconds in which no further failed try is told, after the first one and at most."""
LOOK = 0.5
"""Seconds between two looks at the SuperNode."""
MOST_REFUSALS = 3
"""A hub that has just been opened may have to learn its keys first."""
PROXY_WITHOUT_HUB = (502, 503, 504)
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of an answer that is no TLS."""
INSECURE = (
    "WARNING: this site is INSECURE: it has no TLS and no key. Whoever is on the way to the hub can read and change "
    "everything, and whoever pretends to be the hub can let this site work."
)
_REFUSAL = re.compile(rb"\[code: 2004\]|401 Unauthorized|403 Forbidden")
_NODE = re.compile(rb"SuperNode ID: (\d+)")


class _Outcome(StrEnum):
    LOST = "lost the hub"
    REFUSED = "was not let in by the hub"
    FAILED = "did not start"


class Refused(FedseError):
    """The hub does not let this site in."""


def run_site(site: Site, say: Say) -> None:
    """Work for the hub until the process is stopped."""
    prepare("fedse site")
    check_keys(site.options.secure_sum, site.experiment)
    if site.options.insecure:
        say(INSECURE)
    wait_for_hub(site, say)
    worker = Worker(site, say)
    say(f"{site.name}: ready, working in {site.run_folder}")
    with socket_folder(site.options.folder) as folder:
        address = folder / "worker"
        threading.Thread(target=_supervise, args=(site, address, say), daemon=True).start()
        # The worker has the main thread, because a buffer may be used in the thread that opened it only.
        worker.serve(address)


def wait_for_hub(site: Site, say: Say) -> None:
    """Return when the hub is open and has proved who it is. Failed tries are told less and less often."""
    began = told_next = time.monotonic()
    silence, last = SILENT_FIRST, ""
    while True:
        connection = _connection(site)
        try:
            connection.request("POST", "/v1/fleet/get-run")
            status = connection.getresponse().status
            if site.options.insecure and status == http.client.BAD_REQUEST:
                raise Refused(
                    f"the hub at {site.options.hub} wants TLS: delete `insecure` and use the kit that it made."
                )
            if status not in PROXY_WITHOUT_HUB:
                return
            trouble = f"its proxy answers {status}: the hub is not running"
        except ssl.SSLCertVerificationError as error:
            raise Refused(
                f"the hub at {site.options.hub} shows a certificate that {site.options.authority} does not vouch for "
                f"({error.verify_message}): use the ca.crt of this hub's kit."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
                raise Refused(
                    f"the hub at {site.options.hub} speaks no TLS; only a site whose file says `insecure: true` talks to it."
                ) from error
            trouble = str(error) or type(error).__name__
        finally:
            connection.close()
        now = time.monotonic()
        if not last:
            say(f"the hub at {site.options.hub} cannot be reached ({trouble}): trying again every {AGAIN:.0f} s")
        elif now >= told_next or trouble != last:
            say(
                f"the hub at {site.options.hub} has been out of reach for {now - began:.0f} s ({trouble}): still trying. Is "
                "`fedse hub run` running there, does it warn of anything, and is this the address in its hub.yaml?"
            )
        if now >= told_next:
            told_next, silence = now + silence, min(2 * silence, SILENT_LAST)
        last = trouble
        time.sleep(AGAIN)


def _connection(site: Site) -> http.client.HTTPConnection:
    host, port = site.options.hub.rsplit(":", 1)
    if site.options.insecure:
        return http.client.HTTPConnection(host, int(port), timeout=10)
    context = ssl.create_default_context(cafile=str(site.options.authority))
    return http.client.HTTPSConnection(host, int(port), timeout=10, context=context)


def _supervise(site: Site, address: Path, say: Say) -> None:
    refusals = 0
    while True:
        code, outcome = _connect(site, address, say)
        refusals = refusals + 1 if outcome is _Outcome.REFUSED else 0
        if refusals >= MOST_REFUSALS:
            say(
                f"the hub at {site.options.hub} refuses the key {site.options.key}: it must be the one that the hub made "
                f"for '{site.name}', and no other process may use it."
            )
            _leave(address)
        say(f"Flower's SuperNode {outcome} (code {code}); starting it again in {AGAIN:.0f} s (see {_log(site)})")
        time.sleep(AGAIN)
        try:
            wait_for_hub(site, say)
        except Refused as error:
            say(str(error))
            _leave(address)


def _leave(address: Path) -> NoReturn:
    """End the process from a thread: the main one waits for messages that will not come."""
    shutil.rmtree(address.parent, ignore_errors=True)
    os._exit(1)


def _connect(site: Site, address: Path, say: Say) -> tuple[int, _Outcome]:
    """Run a SuperNode until it ends: its exit code, and how it went."""
    log = _log(site)
    log.parent.mkdir(parents=True, exist_ok=True)
    # Flower does not install again what it finds here under the right name.
    shutil.rmtree(site.options.folder / "flower/apps", ignore_errors=True)
    with log.open("ab") as output:
        size = output.tell()
        process = subprocess.Popen(
            [*_command(site, address, _last_node(site))],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment(site.options.folder / "flower")),
        )
        told = size
        while (code := process.poll()) is None:
            time.sleep(LOOK)
            told = _pass_on(log, told, say)
        _pass_on(log, told, say)
    said = log.read_bytes()[size:]
    if _NODE.search(said):
        return code, _Outcome.LOST
    return code, _Outcome.REFUSED if _REFUSAL.search(said) else _Outcome.FAILED


def _pass_on(log: Path, since: int, say: Say) -> int:
    """Tell what the SuperNode has to say to the site's operator; returns up to where its log was read."""
    with log.open("rb") as file:
        file.seek(since)
        whole, newline, _ = file.read().rpartition(b"\n")
    for line in whole.splitlines():
        if line.startswith(TOLD.encode()):
            say(line.decode(errors="replace").removeprefix(TOLD))
    return since + len(whole + newline)


def _last_node(site: Site) -> int:
    """The number that the hub gave to this site's last SuperNode, 0 if there was none that can be signed off."""
    if site.options.insecure:
        return 0
    log = _log(site)
    found = _NODE.findall(log.read_bytes())
    return int(found[-1]) if found else 0


def _command(site: Site, address: Path, earlier: int) -> Iterator[str]:
    yield from (sys.executable, "-m", "fedse.apps.launch", "supernode", str(os.getpid()), str(earlier))
    yield from ("--superlink", site.options.hub)
    if site.options.insecure:
        yield "--insecure"
    else:
        yield from ("--root-certificates", str(site.options.authority))
        yield from ("--auth-supernode-private-key", str(site.options.key))
    yield from ("--host", "127.0.0.1", "--port", str(_free_port()))
    yield from ("--node-config", f'{WORKER}="{address}" {SITE}="{site.name}"')


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _log(site: Site) -> Path:
    return site.options.folder / "supernode.log"


@contextmanager
def only_one(site: Site) -> Iterator[None]:
    """Hold the site's folder, so that two processes cannot work in it."""
    import fcntl

    site.options.folder.mkdir(parents=True, exist_ok=True)
    with (site.options.folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"{site.options.folder} is in use by another `fedse site run`: stop that one.") from error
        yield
