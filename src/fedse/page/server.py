"""The page's server: this machine only, behind a secret in the address, and nothing but reading."""

from __future__ import annotations

import hmac
import json
import secrets
import time
import traceback
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from fedse.errors import BadInput, FedseError
from fedse.page.answers import Answers, NotThere, tame
from fedse.page.files import FILES, INDEX, POLICY

HOST = "127.0.0.1"
_SIGN_OF_LIFE = 10.0
"""Seconds after which a listener that hears nothing is told that nothing happened; it finds out whether it still listens."""
_PAUSE = 0.3


class PageServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, answers: Answers, port: int = 0, pause: float = _PAUSE) -> None:
        self.answers = answers
        self.token = secrets.token_urlsafe(18)
        self.pause = pause
        self.closing = False
        try:
            super().__init__((HOST, port), partial(_Handler))
        except OSError as error:
            raise BadInput(f"port {port} is not available ({error.strerror}): choose another with --port.") from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away. What it asked for may be text of a run, which has no business in a terminal."""

    def server_close(self) -> None:
        self.closing = True
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "fedse", ""
    timeout = 30

    def do_GET(self) -> None:
        if (self.headers.get("Host") or "") not in {
            f"{name}:{self.server.server_port}" for name in (HOST, "localhost")
        }:
            # A name of somebody else's that leads here would make their page and this one the same to a browser.
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        path, _, query = self.path.partition("?")
        token, *rest = [unquote(word) for word in path.removeprefix("/").split("/")]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        try:
            self._serve(rest, dict(parse_qsl(query)))
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True

    def _serve(self, rest: list[str], asked: Mapping[str, str]) -> None:
        match rest:
            case [""]:
                self._send(HTTPStatus.OK, *INDEX)
            case ["static", name] if name in FILES:
                self._send(HTTPStatus.OK, *FILES[name])
            case ["api", "runs"]:
                self._answer(self.server.answers.listing())
            case ["api", run, "events"] if run in self.server.answers.runs:
                self._follow(run, self.headers.get("Last-Event-ID") or asked.get("after", ""))
            case ["api", run, view]:
                self._view(run, view, asked)
            case _:
                self._refuse(HTTPStatus.NOT_FOUND)

    def _view(self, run: str, view: str, asked: Mapping[str, str]) -> None:
        status = HTTPStatus.OK
        try:
            content = self.server.answers.view(run, view, asked)
        except FedseError as error:
            # Why something cannot be shown is what the reader asked for.
            status = HTTPStatus.NOT_FOUND if isinstance(error, NotThere) else status
            content = tame({"refused": str(error)})
        except Exception as error:  # A fault of the page is told where it is seen, and not lost with its thread.
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.name} in {Path(place.filename).name}"
            content = tame({"refused": f"The page broke ({type(error).__name__}, {where}): please report it."})
            status = HTTPStatus.INTERNAL_SERVER_ERROR
        self._answer(content, status)

    def _follow(self, run: str, place: str) -> None:
        """The events from a place on, as they come. The id of each is the place after it: who comes back goes on there."""
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream; charset=utf-8")
        self.end_headers()
        self._heard = time.monotonic()
        view = self.server.answers.runs[run].run
        for logged in view.follow(int(place) if place.isdecimal() else 0, self.server.pause, over=self._is_over):
            content = json.dumps(tame({"time": logged.time, **logged.event.to_json()}), default=str)
            self._say(f"id: {logged.after}\ndata: {content}\n\n")

    def _is_over(self) -> bool:
        if time.monotonic() - self._heard > _SIGN_OF_LIFE:
            self._say(": still here\n\n")
        return self.server.closing

    def _say(self, text: str) -> None:
        self._heard = time.monotonic()
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _answer(self, content: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, "application/json", json.dumps(content, allow_nan=False).encode())

    def _refuse(self, status: HTTPStatus) -> None:
        sentence = "Open the page with the whole address that `fedse view` printed, with its secret."
        self._send(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _headers(self, kind: str) -> None:
        for name, value in {
            "Content-Type": kind,
            "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)

    def log_message(self, format: str, *words: Any) -> None:
        """The address holds the secret: it is written nowhere."""
