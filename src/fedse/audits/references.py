"""Other runs of the same kind, made by whoever attacks: what they learned from is known, and is left out of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedse.audits.candidates import Ids
from fedse.audits.seats import Seen, seen
from fedse.clients.kept import BUFFER
from fedse.errors import BadInput
from fedse.experience.buffer import read_file
from fedse.experiments.options import Experiment
from fedse.experiments.running import open_run


@dataclass(frozen=True)
class Reference:
    """One other run, from the seats around one of its clients."""

    run: Path
    seen: Seen
    learned: frozenset[Ids]
    """Everything that its clients hold."""


def references(runs: Sequence[Path], audited: Experiment, client: str, number: int) -> list[Reference]:
    """The same client and round of each. Raises `BadInput` where it could not be compared."""
    return [_reference(run, audited, client, number) for run in runs]


def _reference(run: Path, audited: Experiment, client: str, number: int) -> Reference:
    with open_run(run) as federation:
        experiment = federation.experiment
        if experiment.model != audited.model:
            raise BadInput(f"--reference {run}: its model or adapter is another than that of the audited run.")
        if _worlds(experiment, client) != _worlds(audited, client):
            raise BadInput(
                f"--reference {run}: it has no client '{client}' with the same worlds: run the same experiment with another "
                "`seed` and `name`."
            )
        federation.run.digest_of(number)
        found = seen(federation.server, federation.clients, client, number)
        if found is None:
            raise BadInput(f"--reference {run}: client '{client}' sent no update in round {number}.")
        if found.update is None and audited.sending.secure_sum is None:
            raise BadInput(f"--reference {run}: its updates were summed in secret, those of the audited run were not.")
        return Reference(run, found, remembered(federation.run.path / "clients"))


def _worlds(experiment: Experiment, client: str) -> list[object]:
    return [experiment.clients[origin.client].worlds for origin in experiment.holdings.get(client, {}).values()]


def remembered(clients: Path, but: str = "") -> frozenset[Ids]:
    """What all clients of a run hold, or all but one, learned or not."""
    return frozenset(
        item.token_ids for path in clients.glob(f"*/{BUFFER}") if path.parent.name != but for item in read_file(path)
    )
