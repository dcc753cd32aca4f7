"""Replies that have arrived whole, without waiting for the others."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

AT_ONCE = 8
"""Messages asked for in one call; with more under way they take turns, so that many sites do not keep the server busy."""
SOON = 0.5
"""Seconds that a call waits for what it has just asked for."""
MOST_ARRIVING = 64
"""Replies that may be arriving at the same time; with more, the others wait."""


class WholeReplies:
    """A Flower grid that one reply in pieces cannot stop.

    A site announces its reply before it uploads it, and from then on Flower's own `pull_messages` waits for the rest and
    holds back the replies of all others. If the site is gone by then, that lasts for minutes, whatever the deadline. So
    every reply is pulled by itself, and one that is no longer asked for is forgotten. Each user of a grid has its own.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._pulls: dict[str, Future[list[Any]]] = {}
        self._turn: dict[str, int] = {}
        self._calls = 0
        self._threads = ThreadPoolExecutor(MOST_ARRIVING, thread_name_prefix="replies")

    def get_nodes(self) -> Iterable[Any]:
        found: Iterable[Any] = self._grid.get_nodes()
        return found

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        pushed: Iterable[str] = self._grid.push_messages(messages)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        self._calls += 1
        wanted = list(message_ids)
        self._pulls = {message: pull for message, pull in self._pulls.items() if message in wanted}
        self._turn = {message: self._turn.get(message, 0) for message in wanted}
        idle = [message for message in wanted if message not in self._pulls]
        asked = sorted(idle, key=self._turn.__getitem__)[:AT_ONCE]
        for message in asked:
            self._turn[message] = self._calls
            self._pulls[message] = self._threads.submit(self._pull, message)
        wait([self._pulls[message] for message in asked], timeout=SOON)
        done = [message for message, pull in self._pulls.items() if pull.done()]
        return [reply for message in done for reply in self._pulls.pop(message).result()]

    def _pull(self, message: str) -> list[Any]:
        return list(self._grid.pull_messages([message]))
