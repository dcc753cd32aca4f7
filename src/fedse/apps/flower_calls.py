"""Calls to Flower's server that its own commands do not offer, or offer slowly. The pinned version is what they fit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedse.engines.flower.settings import prepare
from fedse.errors import FedseError

prepare("fedse hub")

import httpx  # noqa: E402
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from flwr.common.constant import Status  # noqa: E402
from flwr.proto.control_pb2 import (  # noqa: E402
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fleet_pb2 import DeactivateNodeRequest  # noqa: E402
from flwr.supercore.constant import NodeStatus  # noqa: E402
from flwr.supercore.control import ControlHttpClient  # noqa: E402
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: E402
from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: E402


class KeyIsSpent(FedseError):
    """Flower's server takes a key that was revoked never again."""


def let_in(address: str, authority: Path, keys: Mapping[str, Path]) -> None:
    """Make the server know exactly these keys, each under the name of its site. What it knows besides is refused from now
    on, also where a site is connected with it."""
    wanted = {_bytes_of(path): name for name, path in keys.items()}
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    with ControlHttpClient.from_server_address(address, False, str(authority), interceptors) as client:
        known = {}
        for node in client.ListNodes(ListNodesRequest()).nodes_info:
            if node.status == NodeStatus.UNREGISTERED:
                continue
            if wanted.get(node.public_key) == node.name:
                known[node.public_key] = node.name
            else:
                client.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
        for key, name in wanted.items():
            if key not in known:
                _register(client, key, name)


def _register(client: ControlHttpClient, key: bytes, name: str) -> None:
    """`flwr supernode register` takes seconds for each."""
    try:
        client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
    except httpx.HTTPStatusError as error:
        if "already in use" not in error.response.text:
            raise
        raise KeyIsSpent(
            f"the key of '{name}' was revoked and cannot come back: `fedse hub revoke {name}`, then "
            f"`fedse hub init HUB --site {name}` makes a new one."
        ) from error


def _bytes_of(public_key: Path) -> bytes:
    key = serialization.load_ssh_public_key(public_key.read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return public_key_to_bytes(key)


def last_run_has_ended(address: str, authority: Path | None) -> bool:
    """Whether the run that was submitted last is over, in whatever way."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    certificates = None if authority is None else str(authority)
    try:
        with ControlHttpClient.from_server_address(address, authority is None, certificates, interceptors) as client:
            found = client.ListRuns(ListRunsRequest(limit=1)).run_dict
    except httpx.HTTPError:
        return False
    return any(run.status.status == Status.FINISHED for run in found.values())


def sign_off(address: str, authority: Path, secret_key: Path, node: int) -> None:
    """Tell the hub that an earlier process of this site is gone; it would count as online for a minute otherwise,
    and the hub lets nobody in who is there already."""
    key = serialization.load_ssh_private_key(secret_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    with (
        suppress(httpx.HTTPError),
        FleetHttpClient.from_server_address(address, False, str(authority), interceptors) as client,
    ):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
