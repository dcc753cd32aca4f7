"""What stays of a site that has left, in the adapters of runs that went on, or were made again, without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedse.audits.candidates import Ids
from fedse.audits.references import remembered
from fedse.audits.seats import Attack
from fedse.errors import BadInput
from fedse.experiments.options import experiment_of
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import shared_adapter
from fedse.types import Adapter


@dataclass(frozen=True)
class Without:
    """One run in which a client does not learn."""

    run: Path
    adapters: Sequence[Adapter]
    """What was broadcast, from the beginning on."""
    learned: frozenset[Ids]
    """Everything that its clients hold."""

    def attacks(self, initial: Adapter) -> Iterator[Attack]:
        for number, adapter in enumerate(self.adapters):
            seat = f"reader, {self.run.name} round {number}"
            yield Attack(seat, "loss", adapter)
            yield Attack(seat, "change since the beginning", adapter, initial)


def without(runs: Sequence[Path], client: str, like: Adapter) -> list[Without]:
    """Raises `BadInput` where a run's adapters are for another model, or the client learns in it."""
    return [_without(run, client, like) for run in runs]


def _without(run: Path, client: str, like: Adapter) -> Without:
    view = RunView.existing(run)
    if client in experiment_of(view.path).learners:
        raise BadInput(
            f"--without {run}: client '{client}' learns in it: set `clients.{client}.learns=false`, or leave it out there."
        )
    adapters = [shared_adapter(view, number) for number in range((view.last_round() or 0) + 1)]
    if any(adapter.layout != like.layout for adapter in adapters):
        raise BadInput(f"--without {run}: its adapters have other tensors than those of the audited run.")
    return Without(run, adapters, remembered(view.path / "clients"))
