"""`fedse hub run`: Flower's SuperLink on this machine, the sites' keys, and one run of an experiment."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedse.apps.hub_file import load_for_hub
from fedse.apps.hub_folder import HubFolder
from fedse.engines.flower.quiet import environment, prepare
from fedse.errors import BadInput, FedseError
from fedse.protocols import Tracker

Say = Callable[[str], None]
START = 120.0
"""Most seconds that Flower's server may take to start, or an old one to end."""

INSECURE = (
    "WARNING: this hub is INSECURE: it has no TLS and no keys. Everything can be read and changed on its way, and anybody "
    "who reaches it may come in as any site."
)


class HubFailed(FedseError):
    """Flower's server or the run in it ended without a result."""


class RunFailed(FedseError):
    """The run ended with an error of its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_hub(
    hub: HubFolder, file: Path, settings: Sequence[str], runs: Path, trackers: Sequence[Tracker], say: Say
) -> dict[str, Any]:
    """Run an experiment on the sites, or go on with it. Returns the folder of the run and the digest of its adapter."""
    prepare("fedse hub")
    experiment = load_for_hub(file, settings)
    if missing := sorted(set(experiment.clients) - set(hub.sites())):
        raise BadInput(
            f"{file} has clients that are no sites of this hub ({', '.join(missing)}): add them with "
            f"`fedse hub init {hub.path} --site {missing[0]} ...`."
        )
    with open_hub(hub, say) as superlink:
        say(f"waiting for {', '.join(sorted(experiment.clients))}")
        outcome = hub.home / "outcome.json"
        outcome.unlink(missing_ok=True)
        events = runs / experiment.name / "events.jsonl"
        follower = Follower(events, trackers)
        _submit(hub, file, settings, runs, outcome)
        return _watch(hub, superlink, outcome, follower)


@contextmanager
def open_hub(hub: HubFolder, say: Say) -> Iterator[subprocess.Popen[bytes]]:
    """Flower's server, reachable from this machine only, that knows the keys of the sites."""
    prepare("fedse hub")
    if hub.options.insecure:
        say(INSECURE)
    _wait_until_free(hub, say)
    with _superlink(hub) as superlink:
        _wait_until_up(hub, superlink)
        if not hub.options.insecure:
            _register(hub)
        say("the hub is open")
        yield superlink


@contextmanager
def _superlink(hub: HubFolder) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "fedse.apps.launch", "superlink", str(os.getpid()), "0"),
        *("--host", "127.0.0.1", "--port", str(hub.options.port)),
        *_protection(hub),
        "--disable-runtime-dependency-installation",
        # So that sites are known again after a restart.
        *("--database", str(hub.home / "state.db")),
    ]
    hub.home.mkdir(parents=True, exist_ok=True)
    with _log(hub).open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(environment(hub.home)))
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        process.kill()


def _protection(hub: HubFolder) -> Iterator[str]:
    if hub.options.insecure:
        yield "--insecure"
        return
    yield from ("--ssl-ca-certfile", str(hub.certificate("ca.crt")))
    yield from ("--ssl-certfile", str(hub.certificate("server.crt")))
    yield from ("--ssl-keyfile", str(hub.certificate("server.key")))
    yield "--enable-supernode-auth"


def _answers(hub: HubFolder) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", hub.options.port), timeout=5) as plain:
            if hub.options.insecure:
                return True
            context = ssl.create_default_context(cafile=str(hub.certificate("ca.crt")))
            with context.wrap_socket(plain, server_hostname="localhost"):
                return True
    except OSError:
        return False


def _wait_until_free(hub: HubFolder, say: Say) -> None:
    """A hub that was killed takes its server along, but not at once."""
    until, told = time.monotonic() + 30, False
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", hub.options.port))
                return
        if time.monotonic() > until:
            raise BadInput(
                f"port {hub.options.port} of this machine is taken: stop what uses it, or make a hub with --port."
            )
        if not told:
            say(f"port {hub.options.port} is still taken: waiting for it")
            told = True
        time.sleep(0.5)


def _wait_until_up(hub: HubFolder, superlink: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START
    while not _answers(hub):
        if superlink.poll() is not None or time.monotonic() > until:
            raise HubFailed(f"Flower's server did not start; {_log(hub)} says why.")
        time.sleep(0.3)


def _register(hub: HubFolder) -> None:
    """Make the sites' keys known, once each."""
    from fedse.apps.flower_calls import register

    done = hub.home / "registered.json"
    known: list[str] = json.loads(done.read_text()) if done.exists() else []
    for site in hub.sites():
        if site not in known:
            register(f"127.0.0.1:{hub.options.port}", hub.certificate("ca.crt"), site, hub.key(site))
    done.write_text(json.dumps(hub.sites()))


def _submit(hub: HubFolder, file: Path, settings: Sequence[str], runs: Path, outcome: Path) -> None:
    config = {
        "experiment": str(file.resolve()),
        "settings": "\n".join(settings),
        "runs": str(runs.resolve()),
        "outcome": str(outcome),
        "hub": os.getpid(),
        "insecure": hub.options.insecure,
    }
    # A file rather than arguments: Flower's own parser of arguments does not take every sign.
    overrides = hub.home / "run.toml"
    overrides.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    process = _flwr(hub, "run", str(hub.path / "bundle"), "hub", "--run-config", str(overrides))
    said, _ = process.communicate(timeout=START)
    if process.returncode:
        raise HubFailed(f"the run could not be started: {said.strip()}")


def _flwr(hub: HubFolder, *arguments: str) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).parent / "flwr"), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environment(hub.home))
    )


def _watch(hub: HubFolder, superlink: subprocess.Popen[bytes], outcome: Path, follower: Follower) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = json.loads(outcome.read_text()) if outcome.exists() else {}
        follower.follow()
        if "error" in found:
            raise RunFailed(found["error"], found["exit_code"])
        if "adapter" in found:
            return found
        gone = "pid" in found and not Path(f"/proc/{found['pid']}").exists() and sys.platform == "linux"
        if superlink.poll() is not None or (gone and json.loads(outcome.read_text()) == found):
            raise HubFailed(f"the run ended without a result; {_log(hub)} says why. The same command goes on.")
        time.sleep(0.3)


class Follower:
    """Tells trackers what the run writes into its events, from now on."""

    def __init__(self, events: Path, trackers: Sequence[Tracker]) -> None:
        self._events = events
        self._trackers = trackers
        self._read = events.stat().st_size if events.exists() else 0

    def follow(self) -> None:
        if not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            fields = json.loads(line)
            event = fields.pop("event")
            fields.pop("time")
            for tracker in self._trackers:
                tracker.record(event, **fields)


def _log(hub: HubFolder) -> Path:
    return hub.home / "superlink.log"
