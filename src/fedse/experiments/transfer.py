"""How well what one client learned does in the worlds of the others: every client's adapter, measured everywhere.

A run stores the shared adapters only. What a client fitted in the last round is made again from the adapter that entered the
round and the client's buffer, which gives the same bits on the same machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fedse.adapters.packing import pack
from fedse.clients.client import Client
from fedse.evaluation.metrics import row, summarise
from fedse.experience.journal import Journal
from fedse.federation.playing import of_one_process, play_at
from fedse.federation.server import Server
from fedse.probes.evaluation import evaluation_of
from fedse.protocols import Engine
from fedse.storage import atomic, strict_json
from fedse.types import Adapter, RoundTask, Sent, Split, WorldScore

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
    found: dict[str, Any] = strict_json.read_object(path) if path.exists() else {}
    if found.get("adapter") != server.run.digest_of(number) or not isinstance(found.get("rows"), dict):
        found = {"round": number, "split": split, "adapter": server.run.digest_of(number), "rows": {}}
    for name, behind, make in _adapters(server, clients, number):
        if name in found["rows"]:
            continue
        tell(name)
        adapter = make()
        if adapter is not None:
            found["rows"][name] = _everywhere(server.engine, clients, Sent(adapter, behind), number, split, name)
            atomic.write_text(path, json.dumps(found, indent=2) + "\n")
    return found


def _adapters(
    server: Server, clients: Sequence[Client], number: int
) -> Iterator[tuple[str, int, Callable[[], Adapter | None]]]:
    """Each with its name and the rounds behind it, by which a client knows what it kept then."""
    yield BEGINNING, 0, lambda: server.load(0).adapter
    if all(client.adapters.own is None for client in clients):
        yield SHARED, number, lambda: server.load(number).adapter
    for client in clients:
        if client.site.learns:
            yield client.name, number, partial(own_adapter, server, client, number)


def own_adapter(server: Server, client: Client, number: int) -> Adapter | None:
    """What a client fitted in the last round; None when it fitted nothing."""
    if client.adapters.own is not None:
        return client.adapters.own.newest(number)
    report = server.run.report(number)
    if report is not None and client.name not in report["clients"]:
        return None  # It was not asked, or did not answer.
    before = server.load(number - 1)
    start = client.adapters.completed(Sent(before.adapter, number - 1, before.contributed))
    lesson = client.experience.lesson(number, start)
    if lesson is None:
        return None
    (learned,) = of_one_process(server.engine).teach([lesson], number)
    return None if learned is None else learned[0]


def _everywhere(
    engine: Engine, clients: Sequence[Client], sent: Sent, number: int, split: Split, title: str
) -> Mapping[str, Any]:
    """Play one adapter at all clients, with logs apart from those of the run."""
    adapter = sent.adapter
    task = RoundTask(number, "evaluate", pack(adapter), adapter.layout, adapter.config, split)
    together: dict[str, tuple[Adapter, list[Client]]] = {}
    for client in sorted(clients, key=lambda client: client.name):
        completed = client.adapters.completed(sent)
        together.setdefault(completed.digest(), (completed, []))[1].append(client)
    found: dict[str, Sequence[WorldScore]] = {}
    for completed, players in together.values():
        evaluations = {client.name: evaluation_of(client.probes) for client in players}
        played = play_at(engine, evaluations, completed, task)
        for client in players:
            journal_of(client, title).write(task.name, played[client.name].episodes)
            found[client.name] = played[client.name].scores
    scores = [(name, score) for name in sorted(found) for score in found[name]]
    summary = summarise(scores)
    return {
        "adapter": adapter.digest(),
        "worlds": [row(client, score) for client, score in scores],
        "macro": summary["macro"],
        "micro": summary["micro"],
    }


def journal_of(client: Client, name: str) -> Journal:
    """Where the episodes of a row lie."""
    return Journal(client.site.folder / "transfer" / name.strip("()"))
