"""Replies that have arrived whole, without waiting for the others."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

AT_ONCE = 8
TURNS = 4
"""With more than `AT_ONCE` messages under way they take turns, so that many sites do not keep the server busy; everybody's
comes within so many calls."""
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
        for message in self._pulls.keys() - set(wanted):
            self._pulls.pop(message).cancel()
        self._turn = {message: self._turn.get(message, 0) for message in wanted}
        idle = [message for message in wanted if message not in self._pulls]
        asked = sorted(idle, key=self._turn.__getitem__)[: max(AT_ONCE, math.ceil(len(idle) / TURNS))]
        for message in asked:
            self._turn[message] = self._calls
            self._pulls[message] = self._threads.submit(self._pull, message)
        wait([self._pulls[message] for message in asked], timeout=SOON)
        done = [message for message, pull in self._pulls.items() if pull.done()]
        failed = [message for message in done if self._pulls[message].exception() is not None]
        replies = [reply for message in done if message not in failed for reply in self._pulls.pop(message).result()]
        # What has arrived is handed over before an error is raised: nobody could ask for it again.
        if failed and not replies:
            self._pulls.pop(failed[0]).result()
        return replies

    def _pull(self, message: str) -> list[Any]:
        """The reply to this message. Which one a reply names itself, and whether it is one at all, is for its sender to
        choose: Flower takes it apart only here."""
        try:
            replies = list(self._grid.pull_messages([message]))
        except Exception as error:
            if _of_the_connection(error):
                raise
            replies = [None]
        return [reply if _answers(reply, message) else NoReply(_ReplyTo(message)) for reply in replies[:1]]


@dataclass(frozen=True)
class _ReplyTo:
    reply_to_message_id: str


@dataclass(frozen=True)
class NoReply:
    """Stands in the place of something that cannot be read as a reply."""

    metadata: _ReplyTo
    content: None = None

    def has_error(self) -> bool:
        return False


def _answers(reply: Any, message: str) -> bool:
    named = getattr(getattr(reply, "metadata", None), "reply_to_message_id", None)
    return named == message and hasattr(reply, "has_error")


def _of_the_connection(error: Exception) -> bool:
    import httpx

    # A client that was closed says so with a plain RuntimeError.
    return isinstance(error, OSError | httpx.HTTPError) or type(error) is RuntimeError
