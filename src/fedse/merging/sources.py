"""What is merged: the last adapters of finished runs, and adapters that lie in folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedse.adapters.files import TENSORS, read_adapter
from fedse.adapters.first import misfits
from fedse.clients.notebook import Notebook
from fedse.clients.own import own_adapter
from fedse.errors import BadInput
from fedse.experiments.file import differences
from fedse.experiments.options import Experiment
from fedse.experiments.running import stored_experiment
from fedse.runs.reading import RunView
from fedse.runs.shared_adapter import shared_adapter
from fedse.types import Adapter


@dataclass(frozen=True)
class Source:
    name: str
    adapter: Adapter
    client: str = ""
    """Whose own it is; empty for one that was shared or comes from a folder."""


@dataclass(frozen=True)
class Gathered:
    """Adapters with a common beginning, and the run whose clients measure what comes of them."""

    run: RunView
    initial: Adapter
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class _Finished:
    path: Path
    folder: RunView
    experiment: Experiment
    rounds: int

    @classmethod
    def read(cls, path: Path) -> _Finished:
        folder = RunView.existing(path)
        experiment, done = stored_experiment(folder), folder.last_round() or 0
        if not experiment.rounds_to_play or done < experiment.rounds_to_play:
            raise BadInput(
                f"{path} has {done} of {experiment.rounds_to_play} rounds: a merge takes runs that have learned and are "
                "finished."
            )
        for client in experiment.holdings:
            if Notebook(folder.client_folder(client) / "private").before(done + 1).tensors:
                raise BadInput(
                    f"the clients of {path} keep tensors of their own beside what they share, so no adapter of it is whole "
                    "by itself: a merge takes runs without `personal` and without an aggregator that keeps a factor back."
                )
        return cls(path, folder, experiment, done)

    def sources(self) -> Iterator[Source]:
        if self.experiment.sharing == "none":
            for client in sorted(self.experiment.holdings):
                yield Source(f"{self.path}: {client}", own_adapter(self.folder, client, self.rounds), client)
        else:
            yield Source(str(self.path), shared_adapter(self.folder, self.rounds))


def gather(paths: Sequence[Path]) -> Gathered:
    """Everything is read and compared before anything is merged."""
    if twice := [path for at, path in enumerate(paths) if path.resolve() in {item.resolve() for item in paths[:at]}]:
        raise BadInput(f"{twice[0]} is named twice: name each run and each adapter once.")
    runs = {path: _Finished.read(path) for path in paths if (path / "manifest.json").is_file()}
    for path in paths:
        if path not in runs and not (path / TENSORS).is_file():
            raise BadInput(f"{path} is neither a run nor the folder of an adapter.")
    if not runs:
        raise BadInput("none of these is a run: a merge needs at least one, whose clients play the result.")
    first, *others = runs.values()
    for other in others:
        _check_alike(first, other)
    initial = shared_adapter(first.folder, 0)
    if not initial.tensors:
        raise BadInput(f"{first.path} has no adapter, as its model is served elsewhere: there is nothing to merge.")
    found = [
        source
        for path in paths
        for source in (runs[path].sources() if path in runs else [Source(str(path), read_adapter(path))])
    ]
    for source in found:
        for problem in misfits(source.adapter, initial):
            raise BadInput(f"{source.name} {problem}: only adapters of the same shape can be merged.")
    if len(found) < 2:
        raise BadInput(
            f"{found[0].name} is one adapter: a merge needs at least two, such as those of a run with `sharing: none`."
        )
    return Gathered(first.folder, initial, tuple(found))


def _check_alike(first: _Finished, other: _Finished) -> None:
    if changed := differences(first.experiment.model.identity(), other.experiment.model.identity(), "model"):
        raise BadInput(
            f"{first.path} and {other.path} have different models ({', '.join(changed)}): only adapters of one model can be "
            "merged."
        )
    if first.folder.digest_of(0) != other.folder.digest_of(0):
        raise BadInput(
            f"{first.path} and {other.path} began with different adapters, as runs with different seeds do: only changes of "
            "one beginning can be merged."
        )
