"""The adapter that the first round begins with: the model's initial one, or one from outside the run."""

from __future__ import annotations

from pathlib import Path

from fedse.adapters.files import read_adapter
from fedse.adapters.first import first_adapter
from fedse.adapters.plan import sent
from fedse.errors import BadInput, RunConflict
from fedse.experiments.components import Components
from fedse.experiments.options import Experiment
from fedse.experiments.resuming import last_stored
from fedse.federation.stored_state import stored_state
from fedse.plugins import build
from fedse.runs.reading import RunView
from fedse.types import Adapter


class Beginning:
    """Looked at before anything is written. Once a run has stored what it began with, that counts."""

    def __init__(self, experiment: Experiment, components: Components | None, run: RunView) -> None:
        """Without components the model is built when its adapter is asked for."""
        self._experiment = experiment
        self._components = components
        self._run = run
        self._made: Adapter | None = None

    def check(self) -> None:
        """Refuse an adapter from outside that does not fit, or that is another than the run began with, and noise that would
        drown what is learned."""
        outside, noisy = self._experiment.begins_with, self._experiment.has_noisy_mean
        if last_stored(self._run.path) is not None:
            if outside is not None:
                self._check_same(outside)
        elif outside is not None or noisy:
            self._made = self._make()
            if noisy:
                self._check_signal(self._made)

    def adapter(self) -> Adapter:
        if self._experiment.begins_with is not None and self._run.last_round() is not None:
            return stored_state(self._run, 0).adapter  # The folder it came from may be gone.
        return self._make() if self._made is None else self._made

    def _make(self) -> Adapter:
        experiment = self._experiment
        model = build("model", experiment.model) if self._components is None else self._components.model
        initial: Adapter = model.initial_adapter(experiment.seed)
        return initial if experiment.begins_with is None else first_adapter(experiment.begins_with, initial)

    def _check_same(self, folder: Path) -> None:
        """A run needs the folder no more; one that is there may not hold something else."""
        if not folder.expanduser().exists():
            return
        if read_adapter(folder.expanduser()).digest() != self._run.digest_of(0):
            raise RunConflict(
                f"{self._run.path} was begun with another adapter than the one that is in {folder} now (`start_adapter`): "
                "restore that folder, give this experiment another name, or remove the run."
            )

    def _check_signal(self, first: Adapter) -> None:
        """Refuse noise that leaves nothing of the mean, unless the experiment says that it is a study."""
        chosen = self._experiment.aggregator
        made = build("aggregator", chosen)
        asked = sent(first, made.plan.in_round(1))
        if not made.options.simulation and (why := made.drowned(self._experiment.learners_asked, asked.size)):
            raise BadInput(f"aggregator: {chosen.name}: the noise would drown what is learned. {why}.")
