"""The hub's own settings: hub.yaml."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, Field

from fedse.plugins import PluginOptions


def _host_and_port(text: str) -> str:
    found = re.fullmatch(r"([^\s:]+):(\d{1,5})", text)
    if not found or not all(0 < len(label) < 64 for label in found[1].split(".")) or not 1 <= int(found[2]) <= 65535:
        raise ValueError("give it as HOST:PORT, such as hub.example.org:8443, with a port from 1 to 65535")
    return text


class HubOptions(PluginOptions):
    """The hub's own settings, in hub.yaml."""

    address: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8443"
    """Host and port at which sites reach the hub: those of its fence."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port of Flower's server, on this machine only."""
    fence: bool = True
    """Start nginx with the hub; false where something else stands at `address` and passes on what nginx.conf would."""
    listen: str | None = Field(default=None, pattern=r"^[0-9.]+$")
    """Address of this machine at which nginx listens: by default that of `address`, and all of them if it is a name."""
    insecure: bool = False
    """No TLS and no keys: everything can be read and changed on its way, and anybody may come in as any site."""

    @property
    def host(self) -> str:
        """The name or address under which sites know the hub."""
        return self.address.rsplit(":", 1)[0]

    @property
    def for_this_machine(self) -> bool:
        """Whether sites are on the hub's machine and find Flower's server itself at the address, given its port."""
        return self.host in ("localhost", "127.0.0.1")

    @property
    def listens_at(self) -> tuple[str, int]:
        """Address of this machine, and port. A name may belong to a router in front of it, so it is heard everywhere."""
        port = int(self.address.rsplit(":", 1)[1])
        if self.listen is not None:
            return self.listen, port
        if self.host == "localhost":
            return "127.0.0.1", port
        return (self.host if _is_address(self.host) else "0.0.0.0"), port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
