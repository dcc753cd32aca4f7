"""Tasks and answers over a Flower grid, whoever stands behind it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedse.engines.flower.client_replies import read_reply, why
from fedse.engines.flower.wire import Parcel, pack_task, to_records
from fedse.events import Warned
from fedse.federation.sites import Sites
from fedse.types import ClientFailure, ClientReply, RoundTask

LONGEST = 30 * 24 * 3600.0
"""Life of a message that has no deadline, in seconds. Flower's own default of 12 hours would end a long round."""
MOST_LOSSES = 5
LOOK_AGAIN = 2.0
"""Seconds between two looks at who is connected, while everything is under way."""
# Flower's codes for a reply that is an error.
_MESSAGE_GONE, _REPLY_GONE, _NODE_GONE = 3, 4, 5
_KINDS = {1: "AppNotLoaded", 2: "AppFailed", 6: "PreconditionFailed", 7: "BundleRefused", 8: "AppCrashed"}


@dataclass(frozen=True)
class Node:
    """A client that is connected now. `since` changes when it was started anew."""

    id: int
    since: str = ""


@dataclass(frozen=True)
class _Errand:
    client: str
    task: RoundTask
    until: float
    since: str = ""
    losses: int = 0


def registered(nodes: Iterable[Any]) -> dict[str, Node]:
    """Nodes under the names with which the hub registered their keys; a node cannot choose its own."""
    return {node.name: Node(node.node_id, node.last_activated_at) for node in nodes if node.name}


class GridEngine:
    """Pushes one message to each client and asks for the replies. A message lives until the deadline of its task."""

    def __init__(
        self,
        grid: Any,
        sites: Sites,
        nodes: Callable[[Iterable[Any]], Mapping[str, Node]] = registered,
        pause: float = 0.5,
        seal: Callable[[Parcel], Parcel] = lambda parcel: parcel,
    ) -> None:
        """`seal` signs what leaves, where sites know the hub by its key."""
        self.clients = sites.names
        self._grid = grid
        self._sites = sites
        self._nodes = nodes
        self._pause = pause
        self._seal = seal
        self._unsent: dict[str, _Errand] = {}
        self._under_way: dict[str, _Errand] = {}
        self._looked = 0.0

    def present(self) -> set[str]:
        return set(self._present()) & set(self.clients)

    def give_up(self, client: str) -> None:
        self._unsent.pop(client, None)
        self._under_way = {message: errand for message, errand in self._under_way.items() if errand.client != client}

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        now = time.monotonic()
        for client, task in tasks.items():
            until = math.inf if task.seconds is None else now + task.seconds
            self._unsent[client] = _Errand(client, task, until)
        self._deliver()

    def poll(self, seconds: float | None = None) -> list[ClientReply]:
        until = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            if answers := self._collect():
                return answers
            if time.monotonic() >= until:
                return []
            time.sleep(min(self._pause, max(0.0, until - time.monotonic())))
            self._deliver()

    def _present(self) -> Mapping[str, Node]:
        return self._nodes(self._grid.get_nodes())

    def _deliver(self) -> None:
        """Push what is waiting to the clients that are there, and once more what a restarted client has lost."""
        now = time.monotonic()
        if not self._unsent and (not self._under_way or now - self._looked < LOOK_AGAIN):
            return
        self._looked, present = now, self._present()
        for message, errand in list(self._under_way.items()):
            if errand.client in present and present[errand.client].since != errand.since:
                del self._under_way[message]
                self._unsent[errand.client] = replace(errand, losses=errand.losses + 1)
        for client, errand in list(self._unsent.items()):
            left = errand.until - time.monotonic()
            if left <= 0:
                del self._unsent[client]
            elif client in present:
                del self._unsent[client]
                (message,) = self._grid.push_messages([self._message(errand, present[client].id, left)])
                self._under_way[message] = replace(errand, since=present[client].since)

    def _message(self, errand: _Errand, node: int, left: float) -> Any:
        from flwr.app import Message

        task = replace(errand.task, seconds=None if left == math.inf else left)
        parcel = pack_task(task, errand.client, self._sites.run, self._sites.terms)
        return Message(
            to_records(self._seal(parcel)),
            dst_node_id=node,
            message_type=task.kind,
            ttl=min(left, LONGEST),
            group_id=str(task.round),
        )

    def _collect(self) -> list[ClientReply]:
        if not self._under_way:
            return []
        answers = []
        for reply in self._grid.pull_messages(list(self._under_way)):
            errand = self._under_way.pop(reply.metadata.reply_to_message_id, None)
            if errand is None:
                continue  # A second reply to the same message.
            if (answer := self._read(errand, reply)) is not None:
                answers.append(answer)
        return answers

    def _read(self, errand: _Errand, reply: Any) -> ClientReply | None:
        client, task = errand.client, errand.task
        if not reply.has_error():
            try:
                return read_reply(reply.content, client, task, self._sites.plan, self._sites.expected)
            except Exception as error:
                # Whatever a site sends, the others go on.
                return self._unreadable(client, task, why(error))
        code = reply.error.code
        if code in (_MESSAGE_GONE, _REPLY_GONE, _NODE_GONE):
            # Lost on the way, or with the client; worth another try as long as somebody waits for it.
            if time.monotonic() < errand.until and errand.losses < MOST_LOSSES:
                self._unsent[client] = replace(errand, losses=errand.losses + (code != _NODE_GONE))
                return None
            return ClientFailure(client, task.name, "Lost")
        # The text of Flower's error may quote the site's own; it is not read.
        return ClientFailure(client, task.name, _KINDS.get(code, "UnknownFailure"))

    def _unreadable(self, client: str, task: RoundTask, reason: str) -> ClientFailure:
        message = (
            f"the answer of site '{client}' to {task.name} cannot be used ({reason}); the round continues without it."
        )
        about = {"client": client, "task": task.name}
        self._sites.tracker.record(Warned(kind="unreadable_answer", message=message, details=about))
        return ClientFailure(client, task.name, "UnreadableAnswer")
