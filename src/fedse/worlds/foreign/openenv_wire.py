"""The wire of OpenEnv's servers: what they tell over HTTP, and one WebSocket for each episode.

Whatever a server does that is not its protocol raises `OpenEnvFailed`; only its complaint about an action is `BadAction`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from importlib import import_module
from typing import Any

from fedse.errors import FedseError, MissingExtra
from fedse.storage.strict_json import parse
from fedse.visible import short

_LARGEST = 16 * 2**20
"""Bytes of a message."""
_CLOSING = 2.0
"""Seconds to wait for a server that is told good-bye."""
_LAST_WORDS = 8
"""Messages that are still read then."""
_NOT_OFFERED = (404, 405, 501)
# A server is addressed directly, whatever proxy the machine has for the rest of the net.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class OpenEnvFailed(FedseError):
    """An OpenEnv server did not answer, or not in its own protocol."""


class BadAction(Exception):
    """The server says that an action does not fit its schema."""


class Server:
    """An OpenEnv server by its address."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout

    def failed(self, what: str, hint: str = "see whether it runs and what it logs") -> OpenEnvFailed:
        return OpenEnvFailed(f"openenv: the server at {self.url} failed: {what}; {hint}.")

    def slow(self) -> OpenEnvFailed:
        return self.failed(f"no answer within {self.timeout:g} s")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to a GET, or to a POST with this body; None where the server does not have this route."""
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=sent, headers={"Content-Type": "application/json"})
        try:
            with _OPENER.open(request, timeout=self.timeout) as response:
                return parse(response.read(_LARGEST).decode())
        except urllib.error.HTTPError as error:
            if error.code in _NOT_OFFERED:
                return None
            raise self.failed(f"it answers {path} with status {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise (
                self.slow() if isinstance(reason, TimeoutError) else self.failed(f"no connection ({reason})")
            ) from error
        except ValueError as error:
            raise self.failed(f"its answer to {path} is not JSON") from error

    def session(self) -> Session:
        """A new session: an environment of one's own, for as long as the connection lasts."""
        try:
            client, exceptions = import_module("websockets.sync.client"), import_module("websockets.exceptions")
        except ModuleNotFoundError as error:
            raise MissingExtra("the world 'openenv'", "websockets", "openenv") from error
        address = f"ws{self.url.removeprefix('http')}/ws"
        stack = contextlib.ExitStack()
        try:
            connection = stack.enter_context(
                client.connect(
                    address, open_timeout=self.timeout, close_timeout=_CLOSING, max_size=_LARGEST, proxy=None
                )
            )
        except TimeoutError as error:
            raise self.slow() from error
        except (OSError, exceptions.WebSocketException) as error:
            raise self.failed(f"no WebSocket at {address} ({short(error, 200)})") from error
        return Session(self, connection, stack, exceptions.ConnectionClosed)


class Session:
    """One connection, hence one environment at the server."""

    def __init__(self, server: Server, connection: Any, stack: contextlib.ExitStack, closed: type[Exception]) -> None:
        self._server = server
        self._connection = connection
        self._stack = stack
        self._closed = closed

    def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The observation that answers a `reset` or a `step`."""
        message = json.dumps({"type": kind, "data": data})
        # A server that has no room says so and hangs up, perhaps before this is sent; its word is there to be read.
        with contextlib.suppress(self._closed):
            self._connection.send(message)
        try:
            answer = parse(self._connection.recv(self._server.timeout))
        except TimeoutError as error:
            raise self._server.slow() from error
        except self._closed as error:
            raise self._server.failed(f"it closed the connection ({error})") from error
        except ValueError as error:
            raise self._server.failed("its answer is not JSON") from error
        told = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(told, dict) or answer.get("type") not in ("observation", "error"):
            raise self._server.failed(f"its answer is no observation: {short(answer, 200)}")
        if answer["type"] == "error":
            raise self._complaint(kind, told)
        return told

    def _complaint(self, kind: str, told: dict[str, Any]) -> Exception:
        code, said = told.get("code"), short(told.get("message", ""), 300)
        if code == "VALIDATION_ERROR" and kind == "step":
            details = [item for item in told.get("errors") or () if isinstance(item, dict)]
            where = [f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg', '')}" for item in details]
            return BadAction(short("; ".join(where), 300) or said)
        if code == "CAPACITY_REACHED":
            hint = "start it with a larger max_concurrent_envs, or play fewer episodes at once (`slots` of the policy)"
            return self._server.failed(f"it has no room for another session ({said})", hint)
        return self._server.failed(f"it reports {code}: {said}")

    def close(self) -> None:
        """Give the environment back. The server hangs up once it has, so that its place is free for the next session."""
        with contextlib.suppress(Exception):
            self._connection.send(json.dumps({"type": "close"}))
            for _ in range(_LAST_WORDS):
                self._connection.recv(_CLOSING)
        with contextlib.suppress(Exception):
            self._stack.close()
