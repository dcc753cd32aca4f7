"""A run from its beginning, or from where it was stopped, to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fedse.errors import BadInput, RunConflict
from fedse.events import Warned
from fedse.experiments.assembling import Federation, MakeEngine, RunResult, assemble, beginning
from fedse.experiments.building import build_components
from fedse.experiments.components import check_start
from fedse.experiments.file import differences
from fedse.experiments.made_for import not_made_for
from fedse.experiments.noisy_mean import check_signal
from fedse.experiments.options import Experiment, experiment_of
from fedse.experiments.resuming import (
    check_start_adapter,
    check_start_files,
    check_worlds,
    conflict,
    has_beginning,
    has_begun,
    world_versions,
)
from fedse.federation.advice import advice, seen_by_others
from fedse.federation.wholeness import check, restore
from fedse.protocols import DependsOnFiles, Tracker
from fedse.rollouts.player import check_actions
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.trackers import build_trackers


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
    path = folder.path
    if reason := conflict(path, experiment):
        raise RunConflict(reason)
    components = None if make_engine else build_components(experiment)
    warnings: list[Warned] = []
    start = ""
    if components is not None and not has_begun(path):
        check_actions(components.policy, [item for makers in components.worlds.values() for item in makers.items()])
        learning = [name for name, options in experiment.clients.items() if experiment.learning and options.learns]
        warnings = check_start(components, learning)
        if learning and isinstance(components.start, DependsOnFiles):
            start = components.start.fingerprint()
        check_start_files(path, start)
    worlds = {} if components is None else world_versions(components)
    check_worlds(path, worlds)
    check_start_adapter(path, experiment.begins_with)
    told = [*trackers, *build_trackers(experiment.trackers, path, at_sites=components is None)]
    # Whether an adapter from outside fits, and whether noise would drown it, is found out before anything is written.
    looked_at = experiment.begins_with is not None or experiment.has_noisy_mean
    first = beginning(experiment, components) if looked_at and not has_beginning(path) else None
    if first is not None and experiment.has_noisy_mean:
        check_signal(experiment, first)
    folder.begin(experiment.to_yaml(), experiment.digest(), start, worlds)
    warnings += restore(folder)
    if folder.manifest()["experiment"] != experiment.digest():
        folder.replace_experiment(experiment.to_yaml(), experiment.digest())
    federation = assemble(experiment, components, folder, told, make_engine, first)
    settings = [] if components is None else not_made_for(experiment)
    for warning in [*settings, *warnings, *_advice(federation)]:
        federation.server.tracker.record(warning)
    return federation


def _advice(federation: Federation) -> Iterator[Warned]:
    """What somebody should know before clients share anything."""
    experiment, server = federation.experiment, federation.server
    if experiment.rounds_to_play > 0 and experiment.sharing == "all":
        yield from advice(server.aggregator, min(len(experiment.learners), len(server.exchange.invited(1))))
        if experiment.has_library:
            yield seen_by_others(experiment.mix.name, len(experiment.learners))


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
    check_worlds(folder.path, world_versions(components))
    told = [*trackers, *build_trackers(experiment.trackers, folder.path)]
    folder.lock()
    try:
        check(folder)
        return assemble(experiment, components, folder, told)
    except BaseException:
        folder.unlock()
        raise


def stored_experiment(folder: RunView) -> Experiment:
    """What a run was made with, to look at: the classes of its authors' own plug-ins need not be at hand."""
    folder.check_experiment()
    return experiment_of(folder.path, stored=True)
