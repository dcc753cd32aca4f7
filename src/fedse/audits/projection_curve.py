"""How well ProjRes finds members in updates made from ever more trajectories, up to what a client sent.

An attack that finds nobody in a real update proves nothing by itself. So the same attack is tried on updates in which it has
to work: one plain gradient step from few trajectories, then lessons of the run's own learner from as many.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedse.adapters.plan import factor
from fedse.audits.candidates import Candidates, candidates
from fedse.audits.layer_inputs import Matrix, reading
from fedse.audits.membership import FEWEST, seen_in
from fedse.audits.plain_step import plain_step
from fedse.audits.projection import caught, directions
from fedse.audits.rates import Rates, rates
from fedse.audits.references import remembered
from fedse.clients.client import Client
from fedse.errors import BadInput
from fedse.experiments.assembling import Federation
from fedse.federation.playing import of_one_process
from fedse.plugins import capability
from fedse.seeds import generator, stream
from fedse.storage import atomic
from fedse.types import Adapter, Lesson, Trajectory

UPDATES = {1: 10, 8: 4, 32: 2}
"""Trajectories behind an update, and how many such updates are made."""
MOST_OTHERS = 200
GRADIENT, LEARNED, SENT = "one gradient step", "as the client learns", "what the client sent"

Make = Callable[[Sequence[Trajectory]], Adapter]


def projection_curve(federation: Federation, client: Client, number: int) -> dict[str, Any]:
    """What the hub finds in single updates from the adapter that entered a round, stored in the run."""
    rounds, found = seen_in(federation, client, number)
    if found.update is None:
        raise BadInput("the updates of this run were summed in secret: there is no single one to project onto.")
    if not any(tensor.any() for name, tensor in found.entered.tensors.items() if factor(name) == "B"):
        raise BadInput(
            f"B is zero in the adapter that entered round {number}, so a first step cannot change A, which ProjRes reads: "
            "choose a later one with --round."
        )
    if not directions(found.entered, found.update):
        raise BadInput(
            f"client '{client.name}' changed no A in round {number}, and ProjRes reads the change of A alone."
        )
    assert federation.components is not None, "checked before"
    model: Any = federation.components.model
    elsewhere = remembered(federation.run.path / "clients", but=client.name)
    entered, update = found.entered, found.update
    makers: dict[str, Make] = {
        GRADIENT: lambda given: plain_step(model, entered, given),
        LEARNED: lambda given: _learned(federation, entered, given, number),
    }
    worlds = []
    for item in candidates(client, rounds, elsewhere, model.context):
        tried = replace(item, others=item.others[:MOST_OTHERS])
        rows = []
        if min(len(tried.members), len(tried.others)) >= FEWEST:
            made = [
                _Made(name, size, members, directions(entered, make([tried.members[index] for index in members])))
                for name, make in makers.items()
                for size, members in _drawn(tried, client.site.seed)
            ]
            made.append(_Made(SENT, 0, range(len(tried.members)), directions(entered, update)))
            rows = _rows(tried, made, model, entered)
        worlds.append({"world": item.world, "members": len(item.members), "others": len(tried.others), "rows": rows})
    result = {"client": client.name, "round": number, "adapter": federation.run.digest_of(number), "worlds": worlds}
    path = federation.run.path / "evaluations" / f"projection-{number:04d}-{client.name}.json"
    atomic.write_text(path, json.dumps(result, indent=2) + "\n")
    return result


class _Made(NamedTuple):
    """One update, and by numbers the members that it was made from."""

    name: str
    trajectories: int
    members: Sequence[int]
    bases: Mapping[str, Matrix]


def _drawn(item: Candidates, seed: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Members for each update of a size, drawn anew for each."""
    for size, updates in UPDATES.items():
        random = generator(seed, item.world, size, "projection")
        for _ in range(updates if size <= len(item.members) else 0):
            yield size, [int(index) for index in random.permutation(len(item.members))[:size]]


def _rows(item: Candidates, made: Sequence[_Made], model: Any, entered: Adapter) -> list[dict[str, Any]]:
    """Means over the updates of a kind and size, and the lowest and the highest AUC of one."""
    with reading(model, entered) as inputs:
        # Every trajectory is read once, since what goes into all layers takes much memory.
        scores = np.array(
            [[caught(read, one.bases) for one in made] for read in map(inputs, [*item.members, *item.others])]
        )
    found: dict[tuple[str, int], list[Rates]] = {}
    for number, one in enumerate(made):
        inside, outside = scores[list(one.members), number], scores[len(item.members) :, number]
        found.setdefault((one.name, one.trajectories), []).append(rates(inside.tolist(), outside.tolist()))
    return [
        {
            "update": name,
            "trajectories": size or None,
            "updates": len(each),
            "auc": float(np.mean([one.auc for one in each])),
            "auc_range": (min(one.auc for one in each), max(one.auc for one in each)),
            "tpr": float(np.mean([one.tpr for one in each])),
        }
        for (name, size), each in found.items()
    ]


def _learned(federation: Federation, start: Adapter, given: Sequence[Trajectory], number: int) -> Adapter:
    """What the run's learner makes of some trajectories."""
    noisy = capability(federation.experiment.learner, "draws_noise")
    # The noise of an audit need not repeat itself.
    secret = secrets.token_bytes(32) if noisy else b""
    lesson = Lesson(start, given, stream(federation.experiment.seed, number, "projection"), secret=secret)
    (learned,) = of_one_process(federation.server.engine).teach([lesson], number)
    if learned is None:
        raise BadInput(
            "the learner of this run abstains from what the audit gives it, so there is no update to look at."
        )
    return learned[0]
