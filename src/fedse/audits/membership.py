"""Membership inference at one client of a run: which of its trajectories can somebody tell from the adapters they see?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedse.audits.candidates import Candidates, began_with, candidates
from fedse.audits.left_site import without
from fedse.audits.likelihood import losses
from fedse.audits.rates import Rates, rates
from fedse.audits.references import references, remembered
from fedse.audits.seats import CONTROL, Attack, Seen, attacks, scores, seen
from fedse.clients.client import Client
from fedse.clients.kept import BUFFER
from fedse.errors import BadInput
from fedse.experiments.assembling import Federation
from fedse.plugins import capability
from fedse.runs.reading import RunView
from fedse.storage import atomic
from fedse.types import Adapter

FEWEST = 10
"""Members, and non-members, of a world below which nothing is said about it."""


def check_auditable(federation: Federation) -> None:
    """Refuse a run of which nothing could be measured."""
    experiment, path = federation.experiment, federation.run.path
    if not hasattr(getattr(federation.components, "model", None), "network"):
        raise BadInput(
            f"the audit computes how likely the model of {path} finds each token, and `model: {experiment.model.name}` does "
            "not tell: it needs a language model in this process, such as nano."
        )
    if experiment.sharing == "none":
        raise BadInput(f"the clients of {path} share nothing, so nobody else sees an adapter of theirs.")
    if capability(experiment.learner, "learns_from_failures"):
        raise BadInput(
            f"the audit fits what each client of {path} sent again from its buffer, and `learner: "
            f"{experiment.learner.name}` also learned from failures, which no buffer keeps: it needs `learner: imitation`."
        )
    if not federation.run.last_round():
        raise BadInput(f"{path} has no round, so no client has learned anything: the audit needs a run with rounds.")


def check_buffers(run: RunView) -> None:
    """Refuse a folder without the clients' experience, before anything is built in it."""
    if not any((run.path / "clients").glob(f"*/{BUFFER}")):
        raise BadInput(
            f"{run.path} holds no buffer of a client (a hub's folder has none): the audit needs what was learned from, in a "
            "run whose clients are on this machine."
        )


def check_demonstrations(run: RunView, clients: Sequence[Client]) -> None:
    """Refuse where nobody began with what the audit tries to recognise."""
    if not any(began_with(client.experience.buffer) for client in clients):
        whose = f"the client '{clients[0].name}'" if len(clients) == 1 else "the clients"
        raise BadInput(
            f"{whose} of {run.path} began without demonstrations, which are what the audit tries to recognise: it needs a "
            "run with `start: demonstrations`."
        )


def audit(
    federation: Federation, client: Client, number: int, others: Sequence[Path] = (), left: Sequence[Path] = ()
) -> dict[str, Any]:
    """What every seat finds out about a client in a round, stored in the run. `others` are runs to compare it with, `left`
    runs that the client had left."""
    later = without(left, client.name, federation.server.load(0).adapter)
    known = references(others, federation.experiment, client.name, number)
    took_part, found = seen_in(federation, client, number)
    assert federation.components is not None, "checked before"
    model: Any = federation.components.model
    elsewhere = remembered(federation.run.path / "clients", but=client.name).union(
        *(item.learned for item in known), *(item.learned for item in later)
    )
    sets = candidates(client, took_part, elsewhere, model.context)
    attempted = list(attacks(found, [item.seen for item in known]))
    attempted += [attack for item in later for attack in item.attacks(found.initial)]
    worlds = [_of_world(item, attempted, lambda adapter, given: losses(model, adapter, given)) for item in sets]
    result = {"client": client.name, "round": number, "adapter": federation.run.digest_of(number), "worlds": worlds}
    if known:
        result["references"] = [item.run.name for item in known]
    if later:
        result["without"] = [item.run.name for item in later]
    path = federation.run.path / "evaluations" / f"audit-{number:04d}-{client.name}.json"
    atomic.write_text(path, json.dumps(result, indent=2) + "\n")
    return result


def _of_world(
    item: Candidates, attempted: Sequence[Attack], compute: Callable[[Adapter, Any], list[float]]
) -> dict[str, Any]:
    """Rows of one world: how likely a conversation is differs more between worlds than by membership."""
    counts = {"members": len(item.members), "others": len(item.others), "left_out": item.left_out}
    if min(len(item.members), len(item.others)) < FEWEST:
        return {"world": item.world, **counts, "rows": []}
    known: dict[str, list[float]] = {}

    def of_all(adapter: Adapter) -> list[float]:
        digest = adapter.digest()
        if digest not in known:
            known[digest] = compute(adapter, [*item.members, *item.others])
        return known[digest]

    rows = []
    for attack in attempted:
        each = scores(attack, of_all)
        measured = rates(each[: len(item.members)], each[len(item.members) :])
        rows.append({"seat": attack.seat, "attack": attack.name, **_told(measured)})
    return {"world": item.world, **counts, "rows": rows}


def alike(world: Mapping[str, Any]) -> bool:
    """Whether the adapter that learned nothing cannot tell members from non-members either: else no row means anything."""
    low, high = next(row["auc_interval"] for row in world["rows"] if row["seat"] == CONTROL)
    return bool(low <= 0.5 <= high)


def _told(measured: Rates) -> dict[str, Any]:
    told = asdict(measured)
    return {name: told[name] for name in ("auc", "auc_interval", "tpr", "tpr_interval")}


def seen_in(federation: Federation, client: Client, number: int) -> tuple[list[int], Seen]:
    """The rounds in which a client took part, up to one, and what was seen of it in that one."""
    rounds = _rounds_of(federation.run, client.name, number)
    found = seen(federation.server, federation.clients, client.name, number) if number in rounds else None
    if found is None:
        raise BadInput(f"client '{client.name}' sent no update in round {number}: choose another with --round.")
    return rounds, found


def _rounds_of(run: RunView, client: str, number: int) -> list[int]:
    """Those up to a round in which a client took part."""
    reports = {earlier: run.report(earlier) for earlier in range(1, number + 1)}
    return [earlier for earlier, report in reports.items() if report is None or client in report["clients"]]
