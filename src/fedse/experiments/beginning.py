"""The adapter that the first round begins with: the model's initial one, or one from outside the run."""

from __future__ import annotations

from pathlib import Path

from fedse.adapters.files import read_adapter
from fedse.adapters.first import first_adapter
from fedse.errors import RunConflict
from fedse.experiments.components import Components
from fedse.experiments.options import Experiment
from fedse.federation.stored_state import stored_state
from fedse.plugins import Choice, build
from fedse.protocols import Model
from fedse.runs.reading import RunView
from fedse.types import Adapter


class Beginning:
    """Looked at before anything is written. Once a run has stored what it began with, that counts."""

    def __init__(self, run: RunView, model: Model | Choice, seed: int, outside: Path | None) -> None:
        """A model that is only chosen is built when its adapter is asked for. `outside` is the folder of another adapter."""
        self._run = run
        self._model = model
        self._seed = seed
        self._outside = outside
        self._kept: Adapter | None = None

    def check(self, begun: bool) -> None:
        """Refuse an adapter from outside that does not fit, or that is another than the run began with."""
        if self._outside is None:
            return
        if begun:
            self._check_same(self._outside)
        else:
            self.make_now()

    def make_now(self) -> Adapter:
        """For a run that has stored none. The same one is handed out later."""
        if self._kept is None:
            self._kept = self._make()
        return self._kept

    def adapter(self) -> Adapter:
        if self._outside is not None and self._run.last_round() is not None:
            return stored_state(self._run, 0).adapter  # The folder it came from may be gone.
        return self._make() if self._kept is None else self._kept

    def _make(self) -> Adapter:
        model: Model = build("model", self._model) if isinstance(self._model, Choice) else self._model
        initial = model.initial_adapter(self._seed)
        return initial if self._outside is None else first_adapter(self._outside, initial)

    def _check_same(self, folder: Path) -> None:
        """A run needs the folder no more; one that is there may not hold something else."""
        if not folder.expanduser().exists():
            return
        if read_adapter(folder.expanduser()).digest() != self._run.digest_of(0):
            raise RunConflict(
                f"{self._run.path} was begun with another adapter than the one that is in {folder} now (`start_adapter`): "
                "restore that folder, give this experiment another name, or remove the run."
            )


def beginning_of(experiment: Experiment, components: Components | None, run: RunView) -> Beginning:
    """Where clients are elsewhere there are no components, and no model yet."""
    model = experiment.model if components is None else components.model
    return Beginning(run, model, experiment.seed, experiment.begins_with)
