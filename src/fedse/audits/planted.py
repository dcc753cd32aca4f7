"""Which canaries of a client can be told from the adapters that others see, and which epsilon that refutes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedse.audits.likelihood import losses
from fedse.audits.membership import seen_in
from fedse.audits.one_run import lower_bound
from fedse.audits.rates import rates
from fedse.audits.seats import attacks, scores
from fedse.clients.client import Client
from fedse.clients.site import Place
from fedse.errors import BadInput
from fedse.experiments.assembling import Federation
from fedse.plugins import build, capability
from fedse.starts.canaries import Canaries, Canary
from fedse.storage import atomic
from fedse.types import Adapter

_DELTA = 1e-5
"""Of the bound, where the run has no noise and no delta of its own."""


def audit_canaries(federation: Federation, client: Client, number: int) -> dict[str, Any]:
    """What every seat finds out about a client's canaries in a round, stored in the run."""
    rounds, found = seen_in(federation, client, number)
    assert federation.components is not None, "checked before"
    model: Any = federation.components.model
    upper, delta = _accounted(federation, number)
    worlds = []
    for place in client.site.places.values():
        made = _canaries(federation, client, place, rounds)
        kept = [one for one in made if any(one.trajectory.train_mask[1 : model.context])]
        planted = [one.planted for one in kept]
        known: dict[str, list[float]] = {}

        def of_all(
            adapter: Adapter, kept: Sequence[Canary] = kept, known: dict[str, list[float]] = known
        ) -> list[float]:
            digest = adapter.digest()
            if digest not in known:
                known[digest] = losses(model, adapter, [one.trajectory for one in kept])
            return known[digest]

        rows = []
        for attack in attacks(found):
            each = scores(attack, of_all)
            inside = [score for score, one in zip(each, planted, strict=True) if one]
            outside = [score for score, one in zip(each, planted, strict=True) if not one]
            bound = lower_bound(each, planted, delta)
            row = {"seat": attack.seat, "attack": attack.name, "auc": rates(inside, outside).auc}
            rows.append({**row, "epsilon": bound.epsilon, "guesses": bound.guesses, "right": bound.right})
        worlds.append({"world": place.label, "canaries": len(kept), "planted": sum(planted), "rows": rows})
    result = {
        "client": client.name,
        "round": number,
        "adapter": federation.run.digest_of(number),
        "delta": delta,
        "upper_bound": upper,
        "worlds": worlds,
    }
    path = federation.run.path / "evaluations" / f"canaries-{number:04d}-{client.name}.json"
    atomic.write_text(path, json.dumps(result, indent=2) + "\n")
    return result


def with_canaries(federation: Federation, clients: Sequence[Client]) -> list[Client]:
    """Those that began with some in all of their worlds. Raises `BadInput` if there are none."""
    found = [
        client
        for client in clients
        if all(isinstance(_start(federation, place), Canaries) for place in client.site.places.values())
    ]
    if not found:
        names = ", ".join(client.name for client in clients)
        raise BadInput(f"no canaries were planted at {names}: the audit of them needs a run with `start: canaries`.")
    return found


def _start(federation: Federation, place: Place) -> object:
    choice = federation.experiment.clients[place.origin.client].start or federation.experiment.start
    return build("start", choice)


def _canaries(federation: Federation, client: Client, place: Place, rounds: Sequence[int]) -> list[Canary]:
    """Made again, and compared with what the client learned from."""
    start = _start(federation, place)
    assert isinstance(start, Canaries), "chosen before"
    made = start.canaries(*place.origin, place.world, client.site.chat, client.site.seed)
    buffer = client.experience.buffer
    try:
        learned = {item.token_ids for number in rounds for item in buffer.read(number)}
    finally:
        buffer.close()
    if any((one.trajectory.token_ids in learned) != one.planted for one in made):
        raise BadInput(
            f"the canaries that client '{client.name}' learned from are not those that the seed gives: the run was made "
            "with another fedse or another world."
        )
    return made


def _accounted(federation: Federation, number: int) -> tuple[float | None, float]:
    """The accountant's upper bound after a round, if there is one, and the delta that both bounds are for."""
    if not capability(federation.experiment.learner, "draws_noise"):
        return None, _DELTA
    assert federation.components is not None, "checked before"
    learner = federation.components.learner
    return learner.spent(number), learner.options.delta
