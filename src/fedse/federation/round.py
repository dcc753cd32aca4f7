"""One round, as in the paper:

    broadcast -> evaluate the broadcast adapter -> explore -> judge -> filter -> remember -> learn -> send
    -> check -> aggregate

The middle, from evaluate to send, is `Client.work`; the engine carries the adapter to the clients and their updates back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedse.adapters.packing import pack
from fedse.adapters.plan import plan_of, sent
from fedse.errors import BadAggregate, NothingTrained
from fedse.federation.checks import NOT_KEPT, CheckOptions, unfit
from fedse.federation.collected import Collected, SingleUpdates
from fedse.federation.exchange import Exchange
from fedse.federation.governance import Standing
from fedse.federation.library import library_of, with_library, without_library
from fedse.federation.refusals import fruitless
from fedse.federation.report import RoundReport
from fedse.federation.shared import shared_of, with_shared, without_shared
from fedse.federation.summed import SummedUpdates
from fedse.plugins import plain_numbers
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
    standings: Mapping[str, Standing] | None = None,
) -> tuple[ServerState, RoundReport]:
    """From the state after one round to the state after the next.

    `arrived` tells whether an update may be used; `shares` are the names under which plug-ins of clients tell each other
    numbers; `earlier` says how far updates went in the last rounds; with `library` clients are sent what each of them sent
    last; `standings` say what is known of clients from earlier rounds.
    """
    began = time.monotonic()
    number = state.round + 1
    plan = plan_of(aggregator).in_round(number)
    asked = sent(state.adapter, plan)
    summing = exchange.summing
    collected: Collected = (
        SingleUpdates(asked, checks, spool, getattr(aggregator, "needs_counts", ()), standings)
        if summing is None
        else SummedUpdates(asked, checks, summing)
    )
    refused = collected.refused
    crossed: dict[str, int] = {}

    def take(update: ClientUpdate) -> ClientUpdate | None:
        if not arrived(update):
            return None
        if (crossing := update.encoded.array if update.encoded else update.vector) is not None:
            crossed[update.client] = crossing.nbytes
        collected.take(update)
        if update.counts.get("diverged"):
            refused.setdefault(update.client, NOT_KEPT)
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
    usable = collected.usable(answers, earlier)
    if not usable and (why := fruitless(refused, answers, exchange.learners)):
        raise NothingTrained(f"no update of round {number} could be used {why}")
    with during("aggregate"):
        diagnostics = dict(collected.before())
    if usable:
        with during("aggregate"):
            made = aggregator.aggregate(without_library(without_shared(state)), usable)
            if reason := unfit(made, state, checks):
                raise BadAggregate(
                    f"the aggregator {type(aggregator).__name__} made an adapter of round {number} that cannot be used "
                    f"({reason}): nothing of the round was stored; choose another aggregator or other options of it, and "
                    "the same command repeats the round."
                )
            following, own = made
            diagnostics.update(collected.after(state.adapter, following.adapter, plan))
            diagnostics.update(plain_numbers(own))
    else:
        following = replace(state, round=number)
    taken = [update for client, update in answers.updates.items() if client not in refused]
    following = with_shared(following, state.memory, taken, shares)
    if library:
        following = with_library(following, state, usable)
    contributed = collected.contributed()
    following = replace(following, contributed=contributed or state.contributed)

    report = RoundReport(
        round=number,
        adapter=following.adapter.digest(),
        updates=tuple(answers.updates[client] for client in sorted(answers.updates)),
        refused=refused,
        diagnostics={"contributed": list(contributed), **diagnostics},
        seconds=time.monotonic() - began,
        absent=answers.absent,
        sent=crossed,
        broadcast=task.vector.nbytes,
        library=sum(vector.nbytes for vector in task.library.values()),
        late=answers.late,
    )
    return following, report
