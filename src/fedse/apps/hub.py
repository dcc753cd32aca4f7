"""`fedse hub run`: Flower's server on this machine, the sites' keys, and one run of an experiment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedse.apps.flower_server import ServerLost, flower_server
from fedse.apps.hub_file import load_for_hub
from fedse.apps.hub_folder import HubFolder
from fedse.apps.submitted_run import Follower, SubmittedRun
from fedse.engines.flower.quiet import prepare
from fedse.errors import BadInput
from fedse.protocols import Tracker

Say = Callable[[str], None]
INSECURE = (
    "WARNING: this hub is INSECURE: it has no TLS and no keys. Everything can be read and changed on its way, and anybody "
    "who reaches it may come in as any site."
)


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
    follower = Follower(runs / experiment.name / "events.jsonl", trackers)
    submitted = SubmittedRun(hub, file, settings, runs, follower, say)
    while True:
        try:
            with open_hub(hub, say) as server:
                say(f"waiting for {', '.join(sorted(experiment.clients))}")
                return submitted.result(server)
        except ServerLost as error:
            submitted.end()
            submitted.lost(error)


@contextmanager
def open_hub(hub: HubFolder, say: Say) -> Iterator[subprocess.Popen[bytes]]:
    """Flower's server, reachable from this machine only, that knows the keys of the sites."""
    prepare("fedse hub")
    if hub.options.insecure:
        say(INSECURE)
    with flower_server(hub, say) as server:
        if not hub.options.insecure:
            _register(hub)
        say("the hub is open")
        yield server


def _register(hub: HubFolder) -> None:
    """Make the sites' keys known, once each."""
    from fedse.apps.flower_calls import register

    done = hub.home / "registered.json"
    known: list[str] = json.loads(done.read_text()) if done.exists() else []
    for site in hub.sites():
        if site not in known:
            register(f"127.0.0.1:{hub.options.port}", hub.certificate("ca.crt"), site, hub.key(site))
    done.write_text(json.dumps(hub.sites()))
