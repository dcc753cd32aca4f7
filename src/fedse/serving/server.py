"""The HTTP side of a served agent: `/v1/models`, `/v1/chat/completions` and `/health`, on this machine only."""

from __future__ import annotations

import hmac
import json
import threading
import time
from contextlib import suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from fedse import __version__
from fedse.serving.asked import read_request
from fedse.serving.completions import Completion
from fedse.serving.refused import Refused
from fedse.serving.worker import Worker

LOOPBACK = "127.0.0.1"
_LARGEST = 8 << 20
"""Bytes of a request."""
_DIGITS = 20
"""Of a number of bytes that can be meant."""
_IDLE = 120.0
"""Seconds after which a connection that says nothing is closed."""
_LOOK = 0.05
"""Seconds within which it notices that it is to close."""
_MODELS, _CHAT = "/v1/models", "/v1/chat/completions"


class AgentServer:
    """Listens in threads of its own; the worker answers in the thread that calls its `work`."""

    def __init__(self, worker: Worker, model: str, port: int = 0, key: str = "") -> None:
        self.worker, self.model, self.key = worker, model, key
        self.started = int(time.time())

        class Handler(_Handler):
            agent = self

        self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/v1"

    @cached_property
    def hosts(self) -> frozenset[str]:
        """What a request may call this server. A page in a browser that was led here by another name is refused."""
        return frozenset(f"{name}:{self._server.server_port}" for name in (LOOPBACK, "localhost"))

    def listen(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(_LOOK,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"fedse/{__version__}"
    sys_version = ""
    timeout = _IDLE
    agent: AgentServer

    def do_GET(self) -> None:
        self._respond(self._look_up)

    def do_POST(self) -> None:
        self._respond(self._complete)

    def log_message(self, format: str, *args: Any) -> None:
        """Conversations are nobody's business, and one line per request would hide everything else."""

    def _respond(self, answer: Any) -> None:
        with suppress(ConnectionError, TimeoutError):  # Whoever asked may be gone.
            try:
                body = self._body()
                self._check()
                answer(unquote(urlsplit(self.path).path), body)
            except Refused as refused:
                self._send(refused.status, refused.to_json())

    def _body(self) -> bytes:
        """Read before anything is refused: what is left unread would be taken for the next request."""
        length = self.headers.get("Content-Length", "0")
        told = length.isdecimal() and "Transfer-Encoding" not in self.headers
        # Python refuses to read numbers of thousands of digits.
        too_large = length.isdecimal() and (len(length) > _DIGITS or int(length) > _LARGEST)
        if not told or too_large:
            self.close_connection = True
            if too_large:
                raise Refused(413, f"the body is larger than {_LARGEST >> 20} MB.")
            raise Refused(411, "the request must say how long its body is (Content-Length).")
        return self.rfile.read(int(length))

    def _check(self) -> None:
        if self.headers.get("Host", "") not in self.agent.hosts:
            raise Refused(403, f"this server is {LOOPBACK} or localhost, and answers to no other name.")
        key = self.agent.key
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            raise Refused(401, "this server wants a key, and this is not it.", code="invalid_api_key")

    def _look_up(self, path: str, body: bytes) -> None:
        del body
        model = {"id": self.agent.model, "object": "model", "created": self.agent.started, "owned_by": "fedse"}
        if path == "/health":
            self._send(200, {"status": "ok"})
        elif path == _MODELS:
            self._send(200, {"object": "list", "data": [model]})
        elif path.startswith(f"{_MODELS}/"):
            self._check_model(path.removeprefix(f"{_MODELS}/"))
            self._send(200, model)
        else:
            raise _nothing(path)

    def _complete(self, path: str, body: bytes) -> None:
        if path != _CHAT:
            raise _nothing(path)
        asked = read_request(body)
        self._check_model(asked.model)
        read, answer = self.agent.worker.ask(asked)
        completion = Completion(asked, read, answer.result())
        if asked.stream:
            self._stream(completion)
        else:
            self._send(200, completion.to_json())

    def _check_model(self, model: str) -> None:
        if model != self.agent.model:
            message = f"there is no model '{model}': this server has '{self.agent.model}'."
            raise Refused(404, message, "model", "model_not_found")

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content, ensure_ascii=False).encode()
        self._head(status, "application/json", {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _stream(self, completion: Completion) -> None:
        # Without a length the end of the connection is the end of the answer.
        self.close_connection = True
        self._head(200, "text/event-stream", {"Cache-Control": "no-store", "Connection": "close"})
        for event in completion.events():
            self.wfile.write(event.encode())

    def _head(self, status: int, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _nothing(path: str) -> Refused:
    status, what = (405, "cannot be asked in this way") if path in (_CHAT, _MODELS) else (404, "is not here")
    return Refused(status, f"{path} {what}: GET {_MODELS} and POST {_CHAT} are answered.")
