"""A real HTTP server that speaks the chat-completions protocol and misbehaves as told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}


@dataclass
class Said:
    """What the server answers: a completion, unless `body` says something else."""

    text: str = "Thought: on.\nAction: move up"
    status: int = 200
    finish: str = "stop"
    usage: dict[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    pause: float = 0.0
    drop: bool = False

    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.text}
        completion = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
        }
        return json.dumps(completion if self.usage is None else {**completion, "usage": self.usage}).encode()


def refusal(status: int, message: str = "no", **headers: str) -> Said:
    body = json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
    return Said(status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


Behaviour = Callable[[int, dict[str, Any]], Said]
"""The number of the request, from 0, and its body -> the answer."""


class LocalServer:
    """Use as a context manager. Request 0 is the one by which a policy looks whether the server can be used."""

    def __init__(self, behaviour: Behaviour = lambda number, body: Said()) -> None:
        self.behaviour = behaviour
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(handler) -> None:  # noqa: N805
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                with lock:
                    number = len(self.requests)
                    self.requests.append(body)
                    self.headers.append({name.lower(): value for name, value in handler.headers.items()})
                    self.times.append(time.monotonic())
                said = self.behaviour(number, body)
                time.sleep(said.pause)
                if said.drop:
                    handler.close_connection = True
                    return
                content = said.content()
                handler.send_response(said.status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **said.headers}
                for name, value in headers.items():
                    handler.send_header(name, value)
                handler.end_headers()
                try:
                    handler.wfile.write(content)
                except OSError:
                    handler.close_connection = True

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> LocalServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
