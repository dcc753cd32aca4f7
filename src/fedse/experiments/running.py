"""A run from its beginning, or from where it was stopped, to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedse.errors import BadInput
from fedse.events import Warned
from fedse.experiments.assembling import Federation, MakeEngine, RunResult, assemble
from fedse.experiments.beginning import beginning_of
from fedse.experiments.checks.noise import check_noise, check_noise_libraries
from fedse.experiments.checks.playing import check_playing
from fedse.experiments.components import build_components
from fedse.experiments.file import differences
from fedse.experiments.keys import written_digest
from fedse.experiments.options import Experiment, experiment_of
from fedse.experiments.resuming import Surroundings, check_same_experiment, last_stored
from fedse.federation.advice import advice, nobody_to_compare_with, seen_by_others, seen_in_a_sum_of_two
from fedse.federation.governance import ENOUGH
from fedse.federation.summed import FEWEST_APART
from fedse.federation.wholeness import check, restore
from fedse.protocols import Tracker
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.trackers import told_of


def run(
    experiment: Experiment,
    runs: str | Path = "runs",
    max_minutes: float | None = None,
    trackers: Iterable[Tracker] = (),
    make_engine: MakeEngine | None = None,
) -> RunResult:
    """Run an experiment, or go on with it where it was stopped. Raises `Stopped` when `max_minutes` are over.

    With `make_engine` the clients are elsewhere: nothing of theirs is built here.
    """
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    with prepare(experiment, runs, trackers, make_engine) as federation:
        return federation.finish(deadline)


def prepare(
    experiment: Experiment,
    runs: str | Path = "runs",
    trackers: Iterable[Tracker] = (),
    make_engine: MakeEngine | None = None,
) -> Federation:
    """Everything up to the first round: what cannot work is found out before anything is written. The folder is held."""
    path = Path(runs) / experiment.name
    folder = RunFolder(path)
    folder.check_free()
    # Before anything else: others may be about to begin the same run.
    folder.lock()
    try:
        return _prepared(experiment, folder, trackers, make_engine)
    except BaseException:
        folder.unlock()
        raise


def _prepared(
    experiment: Experiment, folder: RunFolder, trackers: Iterable[Tracker], make_engine: MakeEngine | None
) -> Federation:
    check_same_experiment(folder.path, experiment)
    stored = last_stored(folder.path)
    begun = bool(stored)
    check_noise_libraries(experiment, learns_here=make_engine is None)
    components = None if make_engine else build_components(experiment)
    warnings = [] if components is None else check_playing(experiment, components, begun)
    surroundings = Surroundings.of(components, bool(experiment.learning_clients), begun)
    surroundings.check_same(folder.path)
    tracker = told_of(folder.path, trackers, experiment.trackers, at_sites=components is None)
    beginning = beginning_of(experiment, components, folder)
    beginning.check(begun=stored is not None)
    if experiment.has_noisy_mean and stored is None:
        check_noise(experiment.aggregator, experiment.learners_asked, beginning.make_now())
    # What cannot work has been found out; from here on something is written.
    written = experiment.to_yaml()
    digest = written_digest(written)
    folder.begin(written, digest, surroundings.start or "", surroundings.worlds)
    warnings += restore(folder)
    if folder.manifest()["experiment"] != digest:
        folder.replace_experiment(written, digest)
    federation = assemble(experiment, components, folder, tracker, beginning, make_engine)
    for warning in [*warnings, *_advice(federation)]:
        tracker.record(warning)
    return federation


def _advice(federation: Federation) -> Iterator[Warned]:
    """What somebody should know before clients share anything."""
    experiment, server = federation.experiment, federation.server
    if experiment.rounds_to_play > 0 and experiment.sharing == "all":
        yield from advice(server.aggregator, min(len(experiment.learners), len(server.exchange.invited(1))))
        most = min(len(experiment.learners), experiment.participation.asked(len(experiment.holdings)))
        if experiment.checks.governance is not None and most < ENOUGH:
            yield nobody_to_compare_with(most)
        if experiment.has_library:
            yield seen_by_others(experiment.mix.name, len(experiment.learners))
        summing = experiment.sending.secure_sum
        if summing is not None and summing.min_sites < FEWEST_APART:
            yield seen_in_a_sum_of_two()


def open_run(path: str | Path, trackers: Iterable[Tracker] = (), settings: Sequence[str] = ()) -> Federation:
    """A finished or stopped run with its clients, for evaluation. Leaving it, as a context, gives the folder back.

    `settings` are `a.b=c` for this time, and may change nothing that makes another experiment.
    """
    folder = RunFolder.existing(Path(path))
    experiment = experiment_of(folder.path, settings)
    if changed := differences(experiment_of(folder.path).identity(), experiment.identity()):
        raise BadInput(
            f"{path} holds another experiment (different: {', '.join(changed)}): only what changes no result can be set "
            "here, the keys marked (*) in docs/reference.md."
        )
    components = build_components(experiment)
    Surroundings.of(components, bool(experiment.learning_clients), begun=True).check_same(folder.path)
    folder.lock()
    try:
        check(folder)
        tracker = told_of(folder.path, trackers, experiment.trackers)
        return assemble(experiment, components, folder, tracker, beginning_of(experiment, components, folder))
    except BaseException:
        folder.unlock()
        raise


def stored_experiment(folder: RunView) -> Experiment:
    """What a run was made with, to look at: the classes of its authors' own plug-ins need not be at hand."""
    folder.check_experiment()
    return experiment_of(folder.path, stored=True)
