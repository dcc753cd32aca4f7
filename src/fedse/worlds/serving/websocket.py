"""A WebSocket on a connection that an HTTP server has already read a request from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, BinaryIO

_LARGEST = 2**20
"""Bytes of a message; an action is a line."""
_AT_ONCE = 2**16


class WebSocket:
    """The server's end of a WebSocket, with `websockets` as the judge of every byte and plain streams as the wire."""

    def __init__(
        self, path: str, headers: Iterable[tuple[str, str]], read: BinaryIO, write: Callable[[bytes], Any]
    ) -> None:
        from websockets.datastructures import Headers
        from websockets.http11 import Request
        from websockets.server import ServerProtocol

        self._read, self._write, self._ended = read, write, False
        # A web page that somebody happens to have open may not play: browsers send an origin, programs do not.
        self._protocol = ServerProtocol(origins=[None], max_size=_LARGEST)
        self._protocol.receive_data(Request(path, Headers(headers)).serialize())
        request: Any = self._protocol.events_received()[0]
        self._protocol.send_response(self._protocol.accept(request))
        self._flush()

    @property
    def open(self) -> bool:
        return self._protocol.state.name == "OPEN"

    def talk(self, answer: Callable[[str], str | None]) -> None:
        """Answer every message until the other side leaves, or `answer` returns None."""
        from websockets.frames import Opcode

        said = b""
        while self.open:
            received = self._read.read1(_AT_ONCE)  # type: ignore[attr-defined]
            if not received:
                self._protocol.receive_eof()
                return
            self._protocol.receive_data(received)
            self._flush()
            for event in self._protocol.events_received():
                frame: Any = event
                if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    continue
                said += bytes(frame.data)
                if not frame.fin:
                    continue
                reply = answer(said.decode(errors="replace"))
                said = b""
                if reply is None:
                    return
                self.say(reply)

    def say(self, text: str) -> None:
        if self.open:
            self._protocol.send_text(text.encode())
            self._flush()

    def close(self) -> None:
        """Take leave, and wait until the other side has done so too."""
        with suppress(OSError):
            if self.open:
                self._protocol.send_close(1000)
                self._flush()
            while not self._ended and (received := self._read.read1(_AT_ONCE)):  # type: ignore[attr-defined]
                self._protocol.receive_data(received)
                self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._write(data)
            else:  # The protocol's sign that all is said.
                self._ended = True
