"""A small MCP server, over its standard streams or HTTP: accounts, and a way to break it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import Field

server = MCPServer("ledger")
accounts: dict[str, int] = {}


@server.tool()
def open_books(alice: int, bob: int) -> str:
    """Set the accounts up."""
    accounts.clear()
    accounts.update(alice=alice, bob=bob)
    return "open"


@server.tool()
def balance(who: str) -> int:
    """Tell what is in an account."""
    return accounts[who]


@server.tool()
def transfer(amount: Annotated[int, Field(description="Whole coins.", ge=1, le=5)]) -> str:
    """Move coins from alice to bob."""
    if amount > accounts["alice"]:
        raise ValueError("alice has too little")
    accounts["alice"] -= amount
    accounts["bob"] += amount
    return f"moved {amount}"


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    if "--broken" in sys.argv:
        sys.exit("the ledger is locked")
    if "--http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[-1]))
    else:
        server.run("stdio")
