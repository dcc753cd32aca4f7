"""`fedse hub run`: Flower's server on this machine, the sites' keys, and one run of an experiment."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedse.apps.fence import fence, warn_if_out_of_reach
from fedse.apps.flower_server import ServerLost, answers, flower_server
from fedse.apps.hub_file import load_for_hub
from fedse.apps.hub_folder import HubFolder
from fedse.apps.run_order import withdraw_order
from fedse.apps.sign_of_life import held, hold
from fedse.apps.submitted_run import Follower, SubmittedRun
from fedse.engines.flower.settings import prepare
from fedse.errors import BadInput
from fedse.experiments.resuming import check_same_experiment
from fedse.protocols import Tracker
from fedse.runs import event_log

Say = Callable[[str], None]
INSECURE = (
    "WARNING: this hub is INSECURE: it has no TLS and no keys. Everything can be read and changed on its way, and anybody "
    "who reaches it may come in as any site."
)

WARNED_BEFORE = 60
"""Days."""
_ANOTHER_FOLDER = (
    "give this one another folder (`--runs FOLDER`). Keep its name, by which the sites know it; a run of this hub itself is "
    "resumed with every `--set` it was begun with."
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
    check_same_experiment(runs / experiment.name, experiment, _ANOTHER_FOLDER)
    follower = Follower(runs / experiment.name / event_log.NAME, trackers)
    submitted = SubmittedRun(hub, file, settings, runs, follower, say)
    with _only_one(hub), fence(hub, say):
        while True:
            try:
                with _server(hub, say) as server:
                    say(f"waiting for {', '.join(sorted(experiment.clients))}")
                    return submitted.result(server)
            except ServerLost as error:
                submitted.end()
                submitted.report_loss(error)


@contextmanager
def open_hub(hub: HubFolder, say: Say) -> Iterator[subprocess.Popen[bytes]]:
    """A hub without a run: the fence, and Flower's server behind it."""
    prepare("fedse hub")
    with _only_one(hub), fence(hub, say), _server(hub, say) as server:
        yield server


@contextmanager
def _only_one(hub: HubFolder) -> Iterator[None]:
    """Two processes would end each other's fence and server."""
    hub.home.mkdir(parents=True, exist_ok=True)
    if held(hub.home / ".lock"):
        raise BadInput(f"{hub.path} is open already, in another process: stop that one.")
    with hold(hub.home / ".lock"):
        withdraw_order(hub.home)
        yield


@contextmanager
def _server(hub: HubFolder, say: Say) -> Iterator[subprocess.Popen[bytes]]:
    """Flower's server, reachable from this machine only, that knows the keys of the sites."""
    if hub.options.insecure:
        say(INSECURE)
    else:
        _warn_of_end(hub, say)
    with flower_server(hub, say) as server:
        let_sites_in(hub)
        say("the hub is open")
        warn_if_out_of_reach(hub, say)
        yield server


def let_sites_in(hub: HubFolder) -> None:
    """Exactly those whose keys are in the hub's folder; sites of a hub without keys need not be known."""
    from fedse.apps.flower_calls import let_in

    if not hub.options.insecure:
        keys = {site: hub.key(site) for site in hub.sites()}
        let_in(f"127.0.0.1:{hub.options.port}", hub.certificate("ca.crt"), keys)


def tell_open_hub(hub: HubFolder) -> bool:
    """Let a hub that is open in another process know what has changed in its keys; whether there is one."""
    prepare("fedse hub")
    if not held(hub.home / ".lock") or not answers(hub):
        return False
    let_sites_in(hub)
    return True


def _warn_of_end(hub: HubFolder, say: Say) -> None:
    from fedse.apps.certificates import ends

    end = min(ends(hub.certificate(name)) for name in ("ca.crt", "server.crt"))
    left = end - datetime.datetime.now(datetime.UTC)
    if left.days < WARNED_BEFORE:
        say(f"WARNING: the certificates of this hub end on {end:%Y-%m-%d}: `fedse hub renew` makes new ones.")
