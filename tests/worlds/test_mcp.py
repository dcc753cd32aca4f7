"""The tools of a real MCP server, in a process of its own, as a world."""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedse.errors import BadInput
from fedse.worlds.foreign import mcp_tools
from fedse.worlds.foreign.mcp_connection import McpFailed
from fedse.worlds.foreign.mcp_tools import McpTools
from fedse.worlds.foreign.tool_calls import written

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="needs mcp, which takes a second to import")
SERVER = [sys.executable, str(Path(__file__).with_name("mcp_ledger.py"))]


class Even:
    """Give alice and bob the same number of coins."""

    call: Any

    def reset(self, seed: int) -> str:
        share = random.Random(seed).randint(1, 5)
        self.call("open_books", alice=2 * share, bob=0)
        return f"alice has {2 * share} coins, bob has none."

    def get_reward(self) -> float:
        return float(self.call("balance", who="alice") == self.call("balance", who="bob"))

    def look(self) -> str:
        """See both accounts."""
        return f"{self.call('balance', who='alice')} and {self.call('balance', who='bob')}"


class Clash(Even):
    """Has a tool that the server has too."""

    def transfer(self) -> None:
        """Nothing."""


def ledger(**options: Any) -> McpTools:
    given = {"factory": f"{__name__}:Even", "command": SERVER, "hide": ["open_books", "crash"], "turn_limit": 4}
    return McpTools(**{**given, **options})


@pytest.fixture(scope="module")
def world() -> Any:
    made = ledger()
    yield made
    made.close()


@pytest.mark.slow
def test_rules_list_what_the_server_offers_and_what_the_class_adds(world: McpTools) -> None:
    assert world.rules.startswith(
        "Give alice and bob the same number of coins.\nTools:\nbalance(who: string)\n    Tell"
    )
    assert "transfer(amount: integer)\n    Move coins from alice to bob.\n    amount: Whole coins." in world.rules
    assert "look()" in world.rules and "open_books" not in world.rules and "crash" not in world.rules
    assert {world.trivial(draw / 50) for draw in range(50)} >= {written("transfer", amount=5), written("look")}


def test_an_episode_is_begun_and_scored_by_the_class_and_played_at_the_server(world: McpTools) -> None:
    first, _ = world.reset(options={"task": "test-0"})
    coins = int(first.split()[2])
    assert world.step(written("balance", who="alice"))[0] == str(coins)
    assert world.step(written("transfer", amount=coins // 2))[0] == f"moved {coins // 2}"
    saved = world.save()
    assert world.step(written("finish"))[2:] == (True, False, {"valid": True, "success": True, "score": 1.0})
    world.restore(saved)
    assert world.step(written("look"))[:2] == (f"{coins - coins // 2} and {coins // 2}", 0.0)


def test_what_the_server_refuses_is_an_invalid_action(world: McpTools) -> None:
    world.reset(options={"task": "test-0"})
    for action, told in (
        (written("transfer", amount=1000), "less than or equal to 5"),
        (written("transfer"), "amount"),
        (written("balance", who="carol"), "balance: "),
        (written("crash"), "There is no tool 'crash'"),
    ):
        seen, *_, info = world.step(action)
        assert info["valid"] is False and told in seen


@pytest.mark.slow
def test_a_server_that_dies_is_an_error_and_the_next_episode_has_a_new_one() -> None:
    world = ledger(hide=[], timeout=20.0)
    world.reset(options={"task": "test-0"})
    with pytest.raises(McpFailed, match="see whether it runs by itself"):
        world.step(written("crash"))
    with pytest.raises(McpFailed, match="gone"):
        world.step(written("look"))
    assert "alice has" in world.reset(options={"task": "test-0"})[0]
    assert world._open is not None
    held = world._open._held
    del world
    gc.collect()
    for _ in range(100):
        if held.done():
            break
        time.sleep(0.05)
    assert held.done(), "a world that is dropped leaves no process behind"


def test_servers_that_do_not_fit_are_told(world: McpTools) -> None:
    with pytest.raises(McpFailed, match=r"cannot be reached .*the ledger is locked"):
        _ = ledger(command=[*SERVER, "--broken"], timeout=20.0).rules
    with pytest.raises(McpFailed, match="cannot be reached"):
        _ = ledger(command=["no-such-program"], timeout=20.0).rules
    for options, told in (
        ({"hide": ["vault"]}, "no tool 'vault' to hide"),
        ({"factory": f"{__name__}:Clash"}, "both have a tool 'transfer'"),
    ):
        unfit = ledger(**options)
        unfit._open = world._open
        with pytest.raises(BadInput, match=told):
            _ = unfit.rules
    for wrong in ({"command": []}, {"url": "http://x/mcp"}, {"command": [], "url": "http://x", "env": {"a": "b"}}):
        with pytest.raises(BadInput):
            ledger(**wrong)


@pytest.mark.slow
def test_a_server_is_started_once_or_for_every_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        count = 0

        def __init__(self, *_: Any) -> None:
            Started.count += 1

        def call(self, *_: Any, **__: Any) -> str:
            return "1"

        def close(self) -> None: ...

    monkeypatch.setattr(mcp_tools, "Connection", Started)
    for restart, expected in ((False, 1), (True, 3)):
        Started.count, world = 0, ledger(restart=restart)
        for _ in range(3):
            world.reset(options={"task": "test-0"})
        assert Started.count == expected


@pytest.mark.torture
def test_a_server_over_http() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = subprocess.Popen([*SERVER, "--http", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        world = ledger(command=[], url=f"http://127.0.0.1:{port}/mcp")
        coins = int(world.reset(options={"task": "test-0"})[0].split()[2])
        world.step(written("transfer", amount=coins // 2))
        assert world.step(written("finish"))[4]["success"] is (coins // 2 == coins - coins // 2)
        world.reset(options={"task": "test-0"})
    finally:
        process.kill()
        process.wait()
    with pytest.raises(McpFailed):
        world.step(written("look"))
    with pytest.raises(McpFailed, match="cannot be reached"):
        world.reset(options={"task": "test-0"})
