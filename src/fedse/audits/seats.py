"""Who sees which adapters of a round, and what can be computed from them.

| attack | score, higher for members | paper |
| --- | --- | --- |
| loss | - loss | Yeom and others, arXiv 1709.01604 |
| change | loss under a reference - loss | LoRA-Leak, arXiv 2507.18302 |
| RMIA | `rmia.ratios` | Zarifzadeh and others, arXiv 2312.03262 |

The reference of a change is the adapter that entered the round, or the one before any round, which all of them know. RMIA
has other runs, and looks at each from the same seat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedse.adapters.means import mean_of
from fedse.adapters.packing import pack, unpack
from fedse.adapters.plan import sent, withholds
from fedse.adapters.rounding import decode, encode
from fedse.aggregators.mean import Mean
from fedse.aggregators.rule import ONLY_THE_SUM, SUM_AND_SQUARES
from fedse.audits.rmia import ratios
from fedse.clients.client import Client
from fedse.clients.trials import TriesOut
from fedse.errors import BadInput
from fedse.experiments.transfer import own_adapter
from fedse.federation.server import Server
from fedse.protocols import Aggregator
from fedse.runs.shared_adapter import mean_of_last
from fedse.types import Adapter, Sent

CONTROL = "nobody (control)"
HUB = "hub, single update"
HUB_OF_A_SUM = "hub, mean of updates"
OTHER_SITE = "other site, broadcasts"
READER = "reader, final adapter"


@dataclass(frozen=True)
class Seen:
    """The adapters around a round."""

    initial: Adapter
    entered: Adapter
    update: Adapter | None
    """What the client sent, as the hub reads it; None in a secure sum, of which the hub reads what came of all updates."""
    broadcast: Adapter
    """What came of all updates."""
    final: Adapter
    mean: Adapter | None = None
    """Of all updates, as the hub of a secure sum reads it; None where that is the broadcast itself, where a sum is not
    enough for the aggregator, or where sites put noise on what they add."""


class Attack(NamedTuple):
    seat: str
    name: str
    adapter: Adapter
    reference: Adapter | None = None
    others: Sequence[Adapter] = ()
    """Of other runs."""


def seen(server: Server, clients: Sequence[Client], name: str, number: int) -> Seen | None:
    """What is seen of one of the clients; None where it sent nothing in the round."""
    client = next(item for item in clients if item.name == name)
    update, before, after = _update(server, client, number), server.load(number - 1), server.load(number)
    if update is None:
        return None
    mean = None
    if _is_apart(server.aggregator):
        others = [
            _update(server, item, number) for item in clients if item.name in after.contributed and item is not client
        ]
        every = [update, *(item for item in others if item is not None)]
        mean = Adapter(mean_of([item.tensors for item in every]), update.config)
    return Seen(
        initial=server.load(0).adapter,
        entered=before.adapter,
        update=None if client.door.member else update,
        broadcast=after.adapter,
        final=mean_of_last(server.run, server.run.last_round() or 0, server.mean_of_last),
        mean=mean if mean is not None and _differ(mean, after.adapter, before.adapter) else None,
    )


def attacks(found: Seen, others: Sequence[Seen] = ()) -> Iterator[Attack]:
    """`others` is what is seen of other runs from the same seats."""
    yield Attack(CONTROL, "loss", found.initial)
    if found.update is not None:
        updates = [other.update for other in others if other.update is not None]
        yield from _of_round(HUB, found.update, found, updates)
    if found.mean is not None:
        yield from _of_round(
            HUB_OF_A_SUM, found.mean, found, [other.mean for other in others if other.mean is not None]
        )
    yield from _of_round(OTHER_SITE, found.broadcast, found, [other.broadcast for other in others])
    yield Attack(READER, "loss", found.final)
    yield Attack(READER, "change since the beginning", found.final, found.initial)
    if others:
        yield Attack(READER, "RMIA", found.final, others=[other.final for other in others])


def _of_round(seat: str, adapter: Adapter, found: Seen, others: Sequence[Adapter]) -> Iterator[Attack]:
    yield Attack(seat, "loss", adapter)
    yield Attack(seat, "change in the round", adapter, found.entered)
    yield Attack(seat, "change since the beginning", adapter, found.initial)
    if others:
        yield Attack(seat, "RMIA", adapter, others=others)


def scores(attack: Attack, losses: Callable[[Adapter], list[float]]) -> list[float]:
    """Of each trajectory whose losses are given."""
    own = losses(attack.adapter)
    if attack.others:
        return ratios(own, [losses(other) for other in attack.others])
    if attack.reference is None:
        return [-loss for loss in own]
    return [before - loss for before, loss in zip(losses(attack.reference), own, strict=True)]


def _check(server: Server, client: Client, number: int) -> None:
    """What leaves has to be all that was trained, from what was broadcast: anything else is another attack."""
    before, adapters = server.load(number - 1), client.adapters
    refused = isinstance(adapters.mix, TriesOut) or withholds(adapters.plan)
    if refused or adapters.completed(Sent(before.adapter, number - 1)).digest() != before.adapter.digest():
        raise BadInput(
            f"client '{client.name}' keeps part of its adapter to itself or makes another of what is broadcast, and what "
            "others see of it is not measured yet: the audit needs `mix: broadcast` and an aggregator to which clients send "
            "all that they train."
        )


def _is_apart(aggregator: Aggregator) -> bool:
    """Whether the mean of what clients send is enough for it, and it broadcasts something else."""
    promises: frozenset[str] = getattr(aggregator, "promises", frozenset())
    if not {ONLY_THE_SUM, SUM_AND_SQUARES} & promises or getattr(aggregator, "noise_at_sites", False):
        return False
    kind = type(aggregator)
    return not (issubclass(kind, Mean) and (kind.combine, kind.weights) == (Mean.combine, Mean.weights))


def _differ(mean: Adapter, broadcast: Adapter, entered: Adapter) -> bool:
    """By more than rounding, as a share of the way that was gone."""
    one, other, before = (pack(adapter).astype(np.float64) for adapter in (mean, broadcast, entered))
    return bool(np.linalg.norm(one - other) > 1e-3 * np.linalg.norm(other - before))


def _update(server: Server, client: Client, number: int) -> Adapter | None:
    """What a client sent in the round, as it is read."""
    before = server.load(number - 1).adapter
    _check(server, client, number)
    learned = own_adapter(server, client, number)
    return None if learned is None else _as_read(client, number, before, learned)


def _as_read(client: Client, number: int, before: Adapter, learned: Adapter) -> Adapter:
    """Rounded as it was sent."""
    plan = client.adapters.plan.in_round(number)
    leaving, entered = sent(learned, plan), pack(sent(before, plan))
    read = decode(encode(pack(leaving), entered, client.door.options.precision), entered)
    return Adapter({**learned.tensors, **unpack(read, leaving.layout, learned.config).tensors}, learned.config)
