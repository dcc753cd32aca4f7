"""Who is who among sites without keys."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fedse.engines.flower.client_replies import read_introduction
from fedse.engines.flower.grid import Node
from fedse.engines.flower.wire import FORMAT, Parcel, to_records

PATIENCE = 60.0
"""Seconds after which a node that has not told its name is asked again."""


class NamesWithoutKeys:
    """Asks every node for its name once, and believes it. For a hub that was made without TLS and keys."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._asked: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def __call__(self, nodes: Iterable[Any]) -> dict[str, Node]:
        present = {node.node_id: Node(node.node_id, node.last_activated_at) for node in nodes}
        self._listen()
        self._ask([node for node in present if node not in self._names and node not in self._asked.values()])
        found: dict[str, Node] = {}
        # A site that was started anew is a new node, and its earlier one counts as online for a while: the latest is it.
        for node in sorted(present.values(), key=lambda node: node.since):
            if node.id in self._names:
                found[self._names[node.id]] = node
        return found

    def _ask(self, nodes: list[int]) -> None:
        from flwr.app import Message

        if nodes:
            content = to_records(Parcel({"format": FORMAT}))
            questions = [Message(content, dst_node_id=node, message_type="query", ttl=PATIENCE) for node in nodes]
            self._asked.update(zip(self._grid.push_messages(questions), nodes, strict=True))

    def _listen(self) -> None:
        if not self._asked:
            return
        for reply in self._grid.pull_messages(list(self._asked)):
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                # Whatever a node answers, the others are heard.
                with suppress(Exception):
                    self._names[node] = read_introduction(reply.content)
