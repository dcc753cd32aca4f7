"""The server of `fedse worlds serve`: HTTP and WebSockets on one port, one thread and one world for each session."""

from __future__ import annotations

import ipaddress
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from fedse.errors import BadInput, MissingExtra
from fedse.worlds.answers import BREAKING, reason
from fedse.worlds.serving.routes import Routes
from fedse.worlds.serving.session import MakeWorld, Session, complaint
from fedse.worlds.serving.websocket import WebSocket

_LARGEST_BODY = 2**20
_DIGITS = 20
"""Of a number of bytes that can be meant."""
_QUIET = 3600.0
"""Seconds after which a connection that says nothing is given up."""
_GOODBYE = 5.0
"""The same once good-bye is said."""


class WorldServer(ThreadingHTTPServer):
    """Offers a world to whoever reaches the address."""

    daemon_threads = True

    def __init__(self, name: str, make_world: MakeWorld, host: str, port: int, sessions: int) -> None:
        if find_spec("websockets") is None:
            raise MissingExtra("serving a world", "websockets", "openenv")
        self.routes = Routes(name, make_world)
        self.make_world = make_world
        self.most_sessions = sessions
        self.sessions = 0
        self._counting = threading.Lock()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"the world cannot be served at {host}:{port}: {error}; choose another --host or --port."
            ) from error

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"

    @property
    def reached_by_others(self) -> bool:
        return not ipaddress.ip_address(str(self.server_address[0])).is_loopback

    def take_place(self) -> bool:
        """A place for one more session, if there is one."""
        with self._counting:
            free = self.sessions < self.most_sessions
            self.sessions += free
            return free

    def leave_place(self) -> None:
        with self._counting:
            self.sessions -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of an answer is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: WorldServer
    protocol_version = "HTTP/1.1"
    timeout = _QUIET

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ws" and "upgrade" in self.headers:
            self._session()
        else:
            self._reply(None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        # Python refuses to read numbers of thousands of digits.
        if not length.isdecimal() or len(length) > _DIGITS or int(length) > _LARGEST_BODY:
            self.close_connection = True
            self._send(413, {"detail": "the body is too large, or its length is not told"})
            return
        raw = self.rfile.read(int(length))
        try:
            body = json.loads(raw) if raw.strip() else None
        except (ValueError, RecursionError) as error:
            self._send(422, {"detail": f"the body is not JSON: {error}"})
            return
        self._reply(body)

    def _reply(self, body: Any) -> None:
        if "origin" in self.headers:
            self._send(403, {"detail": "web pages are not served"})
            return
        self._send(*self.server.routes.answer(self.command, urlsplit(self.path).path, body))

    def _send(self, status: int, content: Any) -> None:
        sent = json.dumps(content, default=str).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def _session(self) -> None:
        self.close_connection = True
        socket = WebSocket(self.path, self.headers.items(), self.rfile, self.wfile.write)  # type: ignore[arg-type]
        if not socket.open:
            return
        if not self.server.take_place():
            active = self.server.most_sessions
            told = f"Server at capacity: {active} sessions of {active} are in use"
            socket.say(complaint("CAPACITY_REACHED", told, active_sessions=active, max_sessions=active))
            socket.close()
            return
        try:
            try:
                session = Session(self.server.make_world)
            except BREAKING as error:
                socket.say(complaint("FACTORY_ERROR", reason(error)))
                return
            with closing(session):
                socket.talk(session.answer)
        finally:
            # First the place, then good-bye: a client that hears it may come back at once.
            self.server.leave_place()
            self.connection.settimeout(_GOODBYE)
            socket.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are no news either."""
