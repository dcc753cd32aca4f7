"""The tools of an MCP server as a world. MCP knows neither tasks nor rewards: a class of the user's gives both."""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from fedse.errors import BadInput
from fedse.worlds.foreign.mcp_connection import Connection, McpFailed
from fedse.worlds.foreign.tool_calls import Tool, schema_tool
from fedse.worlds.foreign.tool_class import ToolClass
from fedse.worlds.world import Turn


class McpTools(ToolClass):
    """The tools of an MCP server, with `reset` and `get_reward` from a class of one's own."""

    name = "mcp"
    version = 1

    class Options(ToolClass.Options):
        operational: ClassVar[frozenset[str]] = frozenset({"url", "timeout"})

        command: list[str] = Field(default_factory=list)
        """Program and arguments of a server that speaks over its standard streams; every episode that is played at the same
        time has a process of its own."""
        url: str = Field(default="", pattern=r"^(https?://[^\s/]+.*)?$")
        """Address of a server that speaks over HTTP, in place of `command`."""
        env: dict[str, str] = Field(default_factory=dict)
        """Further environment variables of the process."""
        hide: list[str] = Field(default_factory=list)
        """Tools that the agent does not get, such as those that `reset` and `get_reward` use."""
        restart: bool = False
        """Start the process, or the session, anew for every episode."""
        timeout: float = Field(default=60.0, gt=0)
        """Seconds to wait for an answer."""

        @model_validator(mode="after")
        def _one_server(self) -> Self:
            if bool(self.command) == bool(self.url):
                raise ValueError("give either `command` or `url`")
            if self.url and self.env:
                raise ValueError("`env` has no effect beside `url`; leave it out")
            return self

    options: Options

    _open: Connection | None = None

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            options = self.options
            self._open = Connection(options.command, options.url, options.env, options.timeout)
            # A world that is dropped must not leave a process behind.
            self._leave = weakref.finalize(self, self._open.close)
        return self._open

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        offered = {item.name: item for item in self._connection.tools()}
        if missing := [name for name in self.options.hide if name not in offered]:
            raise BadInput(
                f"mcp: the server has no tool '{missing[0]}' to hide; its tools: {', '.join(sorted(offered))}."
            )
        shown = {name: self._tool(offered[name]) for name in sorted(offered) if name not in self.options.hide}
        own = super()._tools
        if both := sorted(shown.keys() & own.keys()):
            raise BadInput(f"mcp: the server and {type(self._object).__name__} both have a tool '{both[0]}'.")
        return {**shown, **own}

    def _tool(self, item: Any) -> Tool:
        return schema_tool(
            item.name, item.description or "", item.input_schema or {}, lambda **given: self._call(item.name, **given)
        )

    def _call(self, tool: str, **arguments: Any) -> str:
        try:
            return self._connection.call(tool, **arguments)
        except McpFailed:
            # A server whose last call failed is in an unknown state; the next episode has a new one.
            self._hang_up()
            raise

    def start(self, task: str) -> str:
        if self.options.restart:
            self._hang_up()
        _ = self._connection
        self._object.call = self._call
        return super().start(task)

    def play(self, action: str) -> Turn:
        if self._open is None:
            raise McpFailed("mcp: the server of this episode is gone; the next episode has a new one.")
        return super().play(action)

    def _hang_up(self) -> None:
        if self._open is not None:
            self._leave()
            self._open = None

    def close(self) -> None:
        super().close()
        self._hang_up()
