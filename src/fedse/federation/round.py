"""One round, as in the paper:

    broadcast -> evaluate the broadcast adapter -> explore -> judge -> filter -> remember -> learn -> send
    -> check -> aggregate

The middle, from evaluate to send, is `Client.work`; the engine carries the adapter to the clients and their updates back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedse.adapters.packing import pack
from fedse.adapters.plan import plan_of, sent
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators.diagnostics import diagnose
from fedse.aggregators.effective_step import effective_steps
from fedse.errors import BadAggregate, NothingTrained
from fedse.federation.checks import UNCHANGED, CheckOptions, refusal, unfit
from fedse.federation.exchange import Exchange
from fedse.federation.library import library_of, with_library, without_library
from fedse.federation.report import RoundReport
from fedse.federation.shared import shared_of, with_shared, without_shared
from fedse.federation.usual import unusual
from fedse.protocols import Aggregator
from fedse.stopwatch import during
from fedse.types import ClientUpdate, RoundTask, ServerState


def run_round(
    state: ServerState,
    exchange: Exchange,
    aggregator: Aggregator,
    checks: CheckOptions,
    spool: Path,
    arrived: Callable[[ClientUpdate], bool] = lambda _: True,
    shares: frozenset[str] = frozenset(),
    earlier: Sequence[float] = (),
    library: bool = False,
) -> tuple[ServerState, RoundReport]:
    """From the state after one round to the state after the next.

    `arrived` tells whether an update may be used; `shares` are the names under which plug-ins of clients tell each other
    numbers; `earlier` says how far updates went in the last rounds; with `library` clients are sent what each of them sent
    last.
    """
    began = time.monotonic()
    number = state.round + 1
    plan = plan_of(aggregator).in_round(number)
    asked = sent(state.adapter, plan)
    broadcast, layout = pack(asked), asked.layout
    stored: dict[str, UpdateFile] = {}
    refused: dict[str, str] = {}
    crossed: dict[str, int] = {}
    norms: dict[str, float] = {}

    def take(update: ClientUpdate) -> ClientUpdate | None:
        if not arrived(update):
            return None
        if update.vector is not None:
            crossed[update.client] = (update.encoded.array if update.encoded else update.vector).nbytes
        with during("aggregate"):
            reason = refusal(update, broadcast, layout, checks)
        if reason:
            refused[update.client] = reason
        elif update.vector is not None:
            norms[update.client] = float(np.linalg.norm(update.vector.astype(np.float64) - broadcast))
            with during("disk"):
                stored[update.client] = store_update(update, spool)
        return replace(update, vector=None, encoded=None)

    task = RoundTask(
        number,
        "train",
        pack(state.adapter),
        state.adapter.layout,
        state.adapter.config,
        shared=shared_of(state),
        contributed=state.contributed,
        library=library_of(state),
    )
    answers = exchange.ask(exchange.invited(number), task, take)
    if checks.max_ratio is not None:
        far = dict(unusual(norms, float(np.linalg.norm(broadcast.astype(np.float64))), earlier, checks.max_ratio))
        refused.update(far)
        stored = {client: file for client, file in stored.items() if client not in far}

    # Sorted by name, so that the order of arrival cannot change the result.
    usable = [stored[client] for client in sorted(stored)]
    if not usable and refused and all(reason == UNCHANGED for reason in refused.values()):
        reasons = "; ".join(f"{client}: {reason}" for client, reason in sorted(refused.items()))
        raise NothingTrained(f"no update of round {number} could be used ({reasons}).")
    if usable:
        with during("aggregate"):
            diagnostics = diagnose(asked, usable)
            following, own = aggregator.aggregate(without_library(without_shared(state)), usable)
            if reason := unfit(following, state, checks):
                raise BadAggregate(
                    f"the aggregator {type(aggregator).__name__} made an adapter of round {number} that cannot be used "
                    f"({reason}): nothing of the round was stored; choose another aggregator or other options of it, and "
                    "the same command repeats the round."
                )
            diagnostics.update(effective_steps(state.adapter, following.adapter, usable, plan))
            diagnostics.update(own)
    else:
        following, diagnostics = replace(state, round=number), {}
    taken = [update for client, update in answers.updates.items() if client not in refused]
    following = with_shared(following, state.memory, taken, shares)
    if library:
        following = with_library(following, state, usable)
    following = replace(following, contributed=tuple(update.client for update in usable) or state.contributed)

    report = RoundReport(
        round=number,
        adapter=following.adapter.digest(),
        updates=tuple(answers.updates[client] for client in sorted(answers.updates)),
        refused=refused,
        diagnostics={"contributed": [update.client for update in usable], **diagnostics},
        seconds=time.monotonic() - began,
        absent=answers.absent,
        sent=crossed,
        broadcast=task.vector.nbytes,
        library=sum(vector.nbytes for vector in task.library.values()),
        late=answers.late,
    )
    return following, report
