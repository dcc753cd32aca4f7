"""What a hub's fence costs: signed polls of sites, as they come every 3 s from each, through nginx to Flower's server.

python benchmarks/fence.py [--seconds 5] [--turns 5] [--sites 8]

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
from pathlib import Path

from fedse.engines.flower.settings import prepare

prepare("the benchmark of the fence")

from cryptography.hazmat.primitives import serialization  # noqa: E402
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest  # noqa: E402
from flwr.proto.node_pb2 import Node  # noqa: E402
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: E402
from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: E402

from fedse.apps.fence import reload  # noqa: E402
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


class Site:
    """Comes in once; then each call is one signed poll."""

    def __init__(self, hub: HubFolder, name: str) -> None:
        self.hub, self.kit = hub, hub.path / "sites" / name
        self.key = serialization.load_ssh_private_key((self.kit / "site.key").read_bytes(), None)
        self.connect()
        public = public_key_to_bytes(self.key.public_key())
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=600.0)
        self.node = self.client.ActivateNode(request).node_id

    def connect(self) -> None:
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode")]
        interceptors.append(NodeAuthHttpInterceptor(self.key, self.key.public_key()))
        address, authority = self.hub.options.address, str(self.kit / "ca.crt")
        self.client = FleetHttpClient.from_server_address(address, False, authority, interceptors)

    def poll(self) -> None:
        self.client.PullMessages(PullMessagesRequest(node=Node(node_id=self.node)))


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


def measure(sites: list[Site], seconds: float) -> tuple[int, float]:
    """Polls, and CPU seconds of the hub, beyond what it needs while nobody polls."""
    processes = descendants(os.getpid())
    before = cpu_seconds(processes)
    time.sleep(seconds)
    idle = cpu_seconds(processes) - before
    counts = [0] * len(sites)
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < until:
            sites[number].poll()
            counts[number] += 1

    before = cpu_seconds(processes)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(sites))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), cpu_seconds(processes) - before - idle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sites", type=int, default=8)
    given = parser.parse_args()
    fences = {"a connection for each request": without_keep_alive, "connections stay": nginx_configuration}
    polls, spent = dict.fromkeys(fences, 0), dict.fromkeys(fences, 0.0)
    with tempfile.TemporaryDirectory() as scratch:
        names = [f"site{number:03d}" for number in range(given.sites)]
        options = HubOptions(address=f"127.0.0.1:{free_port()}", port=free_port())
        hub = HubFolder.create(Path(scratch) / "hub", options, names)
        with open_hub(hub, print):
            sites = [Site(hub, name) for name in names]
            # In turns, so that other work on the machine hits both alike.
            for label, configuration in [*fences.items()] * given.turns:
                (hub.path / "nginx.conf").write_text(configuration(hub.path, options))
                reload(hub.path)
                time.sleep(2)
                for site in sites:
                    site.connect()
                    site.poll()
                counted, cost = measure(sites, given.seconds)
                polls[label] += counted
                spent[label] += cost
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {given.sites} sites that poll without a pause")
    for label in fences:
        rate, cost = polls[label] / given.seconds / given.turns, spent[label] / polls[label]
        # The server is one Python process, which uses one core.
        print(
            f"{label:32s} {rate:6.1f} polls/s   {1000 * cost:6.1f} ms of CPU a poll   {EVERY / cost:6.0f} sites at most"
        )


if __name__ == "__main__":
    main()
