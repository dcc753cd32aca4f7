"""One round, as in the paper:

    broadcast -> evaluate the broadcast adapter -> explore -> judge -> filter -> remember -> learn -> send
    -> check -> aggregate

The middle, from evaluate to send, happens at the clients (`Client.plan`, the player, `Client.learn`); the engine carries
the adapter to them and their updates back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedse.adapters.packing import pack
from fedse.adapters.plan import plan_of, sent
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators.diagnostics import diagnose
from fedse.errors import NothingTrained
from fedse.federation.checks import UNCHANGED, CheckOptions, refusal
from fedse.protocols import Aggregator, Engine
from fedse.stopwatch import during
from fedse.types import ClientUpdate, RoundReport, RoundTask, ServerState


def run_round(
    state: ServerState,
    engine: Engine,
    aggregator: Aggregator,
    checks: CheckOptions,
    spool: Path,
    arrived: Callable[[ClientUpdate], None] = lambda _: None,
) -> tuple[ServerState, RoundReport]:
    """From the state after one round to the state after the next."""
    began = time.monotonic()
    number, asked = state.round + 1, sent(state.adapter, plan_of(aggregator))
    broadcast, layout = pack(asked), asked.layout

    task = RoundTask(number, "train", pack(state.adapter), state.adapter.layout, state.adapter.config)
    engine.send(dict.fromkeys(engine.clients, task))

    received: dict[str, ClientUpdate] = {}
    stored: dict[str, UpdateFile] = {}
    refused: dict[str, str] = {}
    while len(received) < len(engine.clients):
        for update in engine.poll():
            if update.client not in engine.clients or update.round != number:
                continue  # A stranger, or an answer to a round that is over.
            arrived(update)
            with during("aggregate"):
                reason = refusal(update, broadcast, layout, checks)
            if reason:
                refused[update.client] = reason
            elif update.vector is not None:
                with during("disk"):
                    stored[update.client] = store_update(update, spool)
            received[update.client] = replace(update, vector=None)

    # Sorted by name, so that the order of arrival cannot change the result.
    usable = [stored[client] for client in sorted(stored)]
    if not usable and refused and all(reason == UNCHANGED for reason in refused.values()):
        reasons = "; ".join(f"{client}: {reason}" for client, reason in sorted(refused.items()))
        raise NothingTrained(f"no update of round {number} could be used ({reasons}).")
    if usable:
        with during("aggregate"):
            diagnostics = diagnose(asked, usable)
            following, own = aggregator.aggregate(state, usable)
            diagnostics.update(own)
    else:
        following, diagnostics = replace(state, round=number), {}

    report = RoundReport(
        round=number,
        adapter=following.adapter.digest(),
        updates=tuple(received[client] for client in sorted(received)),
        refused=refused,
        diagnostics={"contributed": [update.client for update in usable], **diagnostics},
        seconds=time.monotonic() - began,
    )
    return following, report
