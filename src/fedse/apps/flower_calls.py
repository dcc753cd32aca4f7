"""Two calls to Flower's server that its own commands do not offer, or offer slowly. The pinned version is what they fit."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from fedse.engines.flower.quiet import prepare

prepare("fedse hub")

import httpx  # noqa: E402
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from flwr.proto.control_pb2 import RegisterNodeRequest  # noqa: E402
from flwr.proto.fleet_pb2 import DeactivateNodeRequest  # noqa: E402
from flwr.supercore.control import ControlHttpClient  # noqa: E402
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor  # noqa: E402
from flwr.supercore.primitives.asymmetric import public_key_to_bytes  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor  # noqa: E402


def register(address: str, authority: Path, name: str, public_key: Path) -> None:
    """Make a site's key known under its name. `flwr supernode register` takes seconds for each."""
    key = serialization.load_ssh_public_key(public_key.read_bytes())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    interceptors = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    with ControlHttpClient.from_server_address(address, False, str(authority), interceptors) as client:
        try:
            client.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name))
        except httpx.HTTPStatusError as error:
            if "already in use" not in error.response.text:
                raise


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
