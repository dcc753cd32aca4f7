"""What a hub's fence costs: signed polls of sites, as they come every 3 s from each, through nginx to Flower's server.

python benchmarks/fence.py [--seconds 10] [--sites 8]

Everything runs on one machine: the sites that poll, nginx and the server share its cores. So beside the polls a second it
tells the CPU time of the hub alone (nginx and the server) for one poll, which says how many sites a machine bears.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedse.engines.flower.quiet import prepare

prepare("the benchmark of the fence")

from cryptography.hazmat.primitives import serialization  # noqa: E402
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest  # noqa: E402
from flwr.proto.node_pb2 import Node  # noqa: E402
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: E402
from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: E402

from fedse.apps import fence  # noqa: E402
from fedse.apps.hub import open_hub  # noqa: E402
from fedse.apps.hub_folder import HubFolder  # noqa: E402
from fedse.apps.hub_options import HubOptions  # noqa: E402
from fedse.apps.nginx_file import nginx_configuration  # noqa: E402

EVERY = 3.0
"""Seconds between two polls of a site."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def without_keep_alive(path: Path, options: HubOptions) -> str:
    """As the fence was: a new TLS connection to the server for each request."""
    text = nginx_configuration(path, options)
    text = re.sub(r"^\s*(keepalive|proxy_http_version|proxy_set_header Connection).*\n", "", text, flags=re.MULTILINE)
    assert "keepalive" not in text
    return text


def poller(hub: HubFolder, site: str) -> Callable[[], None]:
    """A site that has come in: each call is one signed poll."""
    kit = hub.path / "sites" / site
    key = serialization.load_ssh_private_key((kit / "site.key").read_bytes(), None)
    interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode")]
    interceptors.append(NodeAuthHttpInterceptor(key, key.public_key()))
    client = FleetHttpClient.from_server_address(hub.options.address, False, str(kit / "ca.crt"), interceptors)
    request = ActivateNodeRequest(public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=600.0)
    node = client.ActivateNode(request).node_id
    return lambda: client.PullMessages(PullMessagesRequest(node=Node(node_id=node)))


def descendants(process: int) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def cpu_seconds(processes: set[int]) -> float:
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(folder: Path, sites: int, seconds: float) -> tuple[float, float]:
    """Polls a second, and CPU seconds of the hub for one of them, beyond what it needs while nobody polls."""
    options = HubOptions(address=f"127.0.0.1:{free_port()}", port=free_port())
    names = [f"site{number:03d}" for number in range(sites)]
    hub = HubFolder.create(folder, options, names)
    counts = dict.fromkeys(names, 0)
    with open_hub(hub, print):
        polls = {name: poller(hub, name) for name in names}
        processes = descendants(os.getpid())
        before = cpu_seconds(processes)
        time.sleep(seconds)
        idle = cpu_seconds(processes) - before
        until = time.monotonic() + seconds

        def work(name: str) -> None:
            while time.monotonic() < until:
                polls[name]()
                counts[name] += 1

        before = cpu_seconds(processes)
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = cpu_seconds(processes) - before - idle
    total = sum(counts.values())
    print(f"idle: {idle / seconds:.3f} s of CPU a second")
    return total / seconds, spent / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sites", type=int, default=8)
    given = parser.parse_args()
    rows = []
    for label, configuration in (
        ("a connection for each request", without_keep_alive),
        ("connections stay", nginx_configuration),
    ):
        fence.nginx_configuration = configuration
        with tempfile.TemporaryDirectory() as scratch:
            rate, cost = measure(Path(scratch) / "hub", given.sites, given.seconds)
        rows.append((label, rate, cost))
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    for label, rate, cost in rows:
        borne = os.cpu_count() / cost * EVERY
        print(f"{label:32s} {rate:6.1f} polls/s   {1000 * cost:6.1f} ms of CPU a poll   {borne:6.0f} sites at most")


if __name__ == "__main__":
    main()
