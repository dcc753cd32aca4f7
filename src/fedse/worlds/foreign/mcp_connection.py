"""A connection to an MCP server, used from ordinary code: its event loop lives in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from fedse.errors import FedseError, MissingExtra
from fedse.visible import short

_INVALID_PARAMS = -32602
_PAGES = 100
"""Pages of a list of tools that are asked for."""
_CLOSING = 10.0
"""Seconds that a server has to end."""


class McpFailed(FedseError):
    """An MCP server could not be started or reached, or broke off."""


class CallRefused(ValueError):
    """The server says that a call went wrong."""


class Connection:
    """One server: a process that is started here and spoken to over its standard streams, or an address."""

    def __init__(self, command: list[str], url: str, env: dict[str, str], timeout: float) -> None:
        try:
            self._mcp = import_module("mcp")
        except ModuleNotFoundError as error:
            raise MissingExtra("the world 'mcp'", "mcp", "mcp") from error
        self._name = url or " ".join(command)
        self._timeout = timeout
        self._said = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115  It lives as long as the server.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._end: Callable[[], object] = lambda: None
        ready: Future[Any] = Future()
        transport = url or self._mcp.stdio_client(
            self._mcp.StdioServerParameters(command=command[0], args=command[1:], env=env), errlog=self._said
        )
        self._held = asyncio.run_coroutine_threadsafe(self._hold(transport, ready), self._loop)
        try:
            self._client = ready.result(timeout)
        except Exception as error:
            failed = self._failed(f"cannot be reached ({self._reason(error)})")
            self.close()
            raise failed from error

    async def _hold(self, transport: Any, ready: Future[Any]) -> None:
        """Keeps the client open: the task that opened it has to be the one that closes it."""
        opening = asyncio.current_task()
        assert opening is not None
        self._end, over = opening.cancel, asyncio.Event()
        try:
            async with self._mcp.Client(transport, read_timeout_seconds=self._timeout) as client:
                self._end = over.set
                ready.set_result(client)
                await over.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            # The client has the same limit and says more; this one is for a loop that hangs.
            return asked.result(2 * self._timeout)
        except self._mcp.MCPError as error:
            if error.code == _INVALID_PARAMS:
                raise CallRefused(short(error.message, 500)) from error
            raise self._failed(f"answered with an error ({self._reason(error)})") from error
        except Exception as error:
            asked.cancel()
            raise self._failed(f"broke off ({self._reason(error)})") from error

    def _failed(self, what: str) -> McpFailed:
        return McpFailed(f"mcp: the server '{short(self._name)}' {what}; see whether it runs by itself.")

    def _reason(self, error: BaseException) -> str:
        """What went wrong, with the last line that the server's process left behind."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        with contextlib.suppress(OSError, ValueError):
            self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, self._said.tell() - 2000))
            lines = [line for line in self._said.read().splitlines() if line.strip()]
            said += f"; it said: {lines[-1].strip()}" if lines else ""
        return short(said, 300)

    def tools(self) -> list[Any]:
        """What the server offers: objects with `name`, `description` and `input_schema`."""
        return list(self._wait(self._listed()))

    async def _listed(self) -> list[Any]:
        found: list[Any] = []
        cursor = None
        for _ in range(_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    def call(self, tool: str, **arguments: Any) -> str:
        """What a tool answers, as text."""
        result = self._wait(self._client.call_tool(tool, arguments))
        texts = [getattr(block, "text", None) or f"({block.type})" for block in result.content]
        if not texts and result.structured_content is not None:
            texts = [json.dumps(result.structured_content, ensure_ascii=False)]
        answer = "\n".join(texts)
        if result.is_error:
            raise CallRefused(answer)
        return answer

    def close(self) -> None:
        """End the session, and the process if there is one."""
        with contextlib.suppress(Exception):
            self._loop.call_soon_threadsafe(self._end)
            self._held.result(_CLOSING)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._said.close()
