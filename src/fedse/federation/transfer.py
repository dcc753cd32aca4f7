"""How well what one client learned does in the worlds of the others: every client's adapter, measured everywhere.

A run stores the shared adapters only. What a client fitted in the last round is made again from the adapter that entered the
round and the client's buffer, which gives the same bits on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fedse import atomic
from fedse.adapters.packing import pack
from fedse.evaluation.metrics import row, summarise
from fedse.experience.journal import Journal
from fedse.federation.client import Client
from fedse.federation.server import Server
from fedse.types import Adapter, ClientUpdate, RoundTask, Split

BEGINNING = "(beginning)"
SHARED = "(shared)"
"""Rows beside those of the clients. No client can have such a name."""


def transfer(
    server: Server, clients: Sequence[Client], split: Split, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Success of the first adapter, the shared one and each client's own in every world; stored in the run row by row.

    Rows that are there already for the same last round are not played again.
    """
    number = server.run.last_round() or 0
    path = server.run.path / "evaluations" / f"transfer-{split}-{number:04d}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if found.get("adapter") != server.run.digest_of(number):
        found = {"round": number, "split": split, "adapter": server.run.digest_of(number), "rows": {}}
    for name, make in _adapters(server, clients, number):
        if name in found["rows"]:
            continue
        tell(name)
        adapter = make()
        if adapter is not None:
            found["rows"][name] = _everywhere(server, clients, adapter, number, split, name)
            atomic.write_text(path, json.dumps(found, indent=2) + "\n")
    return found


def _adapters(
    server: Server, clients: Sequence[Client], number: int
) -> Iterator[tuple[str, Callable[[], Adapter | None]]]:
    yield BEGINNING, lambda: server.load(0).adapter
    if all(client.own is None for client in clients):
        yield SHARED, lambda: server.load(number).adapter
    for client in clients:
        if client.learns:
            yield client.name, partial(own_adapter, server, client, number)


def own_adapter(server: Server, client: Client, number: int) -> Adapter | None:
    """What a client fitted in the last round; None when it fitted nothing."""
    if client.own is not None:
        return client.own.read(number)
    report = server.run.report(number)
    if report is not None and client.name not in report["clients"]:
        return None  # It was not asked, or did not answer.
    entered = server.load(number - 1).adapter
    task = RoundTask(number, "train", pack(entered), entered.layout, entered.config)
    lesson = client.lesson(number, client.adapter(task))
    learned = None if lesson is None else client.taught(lesson)
    return None if learned is None else learned[0]


def _everywhere(
    server: Server, clients: Sequence[Client], adapter: Adapter, number: int, split: Split, title: str
) -> Mapping[str, Any]:
    """Play one adapter at all clients, with journals apart from those of the run."""
    journals = {client.name: client.journal for client in clients}
    own = {client.name: client.own for client in clients}
    try:
        for client in clients:
            client.own = None  # Everybody plays what is sent.
            client.journal = journal_of(client, title)
        task = RoundTask(number, "evaluate", pack(adapter), adapter.layout, adapter.config, split)
        server.engine.send(dict.fromkeys(server.engine.clients, task))
        received: dict[str, ClientUpdate] = {}
        while len(received) < len(server.engine.clients):
            received.update({got.client: got for got in server.engine.poll() if isinstance(got, ClientUpdate)})
    finally:
        for client in clients:
            client.own, client.journal = own[client.name], journals[client.name]
    scores = [(name, score) for name in sorted(received) for score in received[name].scores]
    summary = summarise(scores)
    return {
        "adapter": adapter.digest(),
        "worlds": [row(client, score) for client, score in scores],
        "macro": summary["macro"],
        "micro": summary["micro"],
    }


def journal_of(client: Client, name: str) -> Journal:
    """Where the episodes of a row lie."""
    return Journal(client.journal.folder.parent / "transfer" / name.strip("()"))
