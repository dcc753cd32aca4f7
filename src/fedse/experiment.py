"""The place where the names of an experiment become a running federation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from fedse.adapters.first import first_adapter
from fedse.adapters.plan import plan_of
from fedse.clients.adapters import ClientAdapters
from fedse.clients.client import EVALUATION, Client
from fedse.clients.experience import Experience
from fedse.clients.site import Origin, Place, Site
from fedse.engines.local import LocalEngine
from fedse.errors import BadInput, RunConflict, Stopped
from fedse.evaluation.plot import draw_run
from fedse.events import Warned
from fedse.experience.buffer import Buffer
from fedse.experience.journal import Journal
from fedse.experiment_file import differences
from fedse.experiment_options import Experiment, load_experiment
from fedse.federation.advice import advice, seen_by_others
from fedse.federation.server import Server
from fedse.federation.sites import Household, Sites
from fedse.federation.wholeness import check, restore
from fedse.known_before import expected_of, names_of
from fedse.parts import MakePlayers, Parts, check_start, make_players, make_start, make_worlds, shared_players
from fedse.plugins import build, capability, is_inline
from fedse.privacy.door import Door
from fedse.probes.after_learning import AfterLearning
from fedse.probes.evaluation import Evaluation
from fedse.protocols import Closes, DependsOnFiles, Engine, Mix, Tracker
from fedse.resuming import (
    check_start_adapter,
    check_start_files,
    check_worlds,
    conflict,
    has_beginning,
    has_begun,
    world_versions,
)
from fedse.rollouts.player import check_actions
from fedse.rollouts.stepping import MakeWorld
from fedse.runs.folder import RunFolder
from fedse.runs.reading import RunView
from fedse.runs.trackers import Trackers, build_trackers, told_of
from fedse.types import Adapter, Split

__all__ = ["Experiment", "load_experiment", "open_run", "run", "stored_experiment"]


def build_parts(experiment: Experiment, players: MakePlayers = make_players) -> Parts:
    """Everything but the clients. `players` makes model and policy; by default they are made anew."""
    alike: dict[str, MakeWorld] = {}
    worlds = {
        name: make_worlds(name, dict(zip(options.labels(), options.worlds, strict=True)), options.training, alike)
        for name, options in experiment.clients.items()
    }
    if not experiment.works_here() and (lost := sorted(filter(is_inline, experiment.plugin_names()))):
        raise BadInput(
            f"{lost[0]} was given as a class that cannot be imported, and this engine works in other processes: put it into "
            "a module, or use `engine: local` without processes."
        )
    model, policy = players(experiment.model, experiment.policy)
    if capability(experiment.mix, "needs_lora") and not hasattr(model, "network"):
        raise BadInput(
            f"mix '{experiment.mix.name}': the model '{experiment.model.name}' has no LoRA adapter for it to work on: "
            "leave `mix` out."
        )
    return Parts(
        model=model,
        policy=policy,
        worlds=worlds,
        start=make_start({name: experiment.start_of(name) for name in experiment.clients}),
        learner=build("learner", experiment.learner, model),
        aggregator=build("aggregator", experiment.aggregator),
    )


def build_clients(experiment: Experiment, parts: Parts, run: RunFolder, only: str = "") -> list[Client]:
    """The clients of an experiment, or one of them."""
    run.keep_clients_private()
    return [
        _build_client(experiment, parts, run.client_folder(name), name, origins)
        for name, origins in experiment.holdings().items()
        if only in ("", name)
    ]


def build_mix(experiment: Experiment, client: str) -> Mix:
    """What a client makes of what it is sent."""
    mix: Mix = build("mix", experiment.mix, client, experiment.seed)
    return mix


def _build_client(
    experiment: Experiment, parts: Parts, folder: Path, name: str, origins: Mapping[str, Origin]
) -> Client:
    site = Site(
        name=name,
        places={
            label: Place(label, parts.worlds[origin.client][origin.label], origin) for label, origin in origins.items()
        },
        chat=parts.model.chat,
        seed=experiment.seed,
        folder=folder,
        exploration=experiment.exploration if experiment.exploring else None,
        learns=name in experiment.learners(),
        joins=experiment.joins(name),
    )
    shares = experiment.sharing == "all"
    buffer = Buffer(folder / "buffer.sqlite", name, parts.model.chat.fingerprint, experiment.buffer)
    evaluation = Evaluation(site, experiment.evaluation)
    again = experiment.evaluation.after_learning
    return Client(
        site=site,
        adapters=ClientAdapters(folder, plan_of(parts.aggregator), build_mix(experiment, name), shares, site.joins),
        experience=Experience(
            site, parts.start, build("filter", experiment.filter), buffer, Journal(folder / "episodes")
        ),
        probes={
            EVALUATION: evaluation,
            **{label: build("probe", part, site) for label, part in experiment.labelled_probes().items()},
        },
        door=Door(folder / "ledger.jsonl", experiment.sending, names_of(experiment, origins, tuple(origins))),
        after_learning=AfterLearning(evaluation, again) if again else None,
        learned_by_world=experiment.evaluation.learned_by_world and len(origins) > 1,
        **{slot: build(part.kind, part, site) for slot, part in experiment.client_slots().items()},
    )


@dataclass(frozen=True)
class RunResult:
    """Where a finished run lies and what it reached."""

    folder: Path
    adapter: Adapter
    """The shared one. Where clients share nothing it is the beginning, and theirs are in clients/NAME/adapters."""
    validation: Mapping[str, Any]
    test: Mapping[str, Any] | None
    """None when the experiment asks for no test."""
    picture: Path | None


@dataclass(frozen=True)
class Federation:
    """A run with everything that is needed to go on with it. Leaving it, as a context, gives the run's folder back."""

    experiment: Experiment
    run: RunFolder
    engine: Engine
    server: Server
    make_clients: Callable[[], Sequence[Client]]
    initial_adapter: Callable[[], Adapter]
    parts: Parts | None = None
    """What the clients share; None where they are on other machines."""

    @property
    def clients(self) -> Sequence[Client]:
        """The clients, in this process."""
        return self.make_clients()

    def finish(self, deadline: float | None = None) -> RunResult:
        """Play the rounds that are left and the closing evaluations. Raises `Stopped` past the deadline."""
        try:
            state = self.server.federate(self.experiment.rounds_to_play, self.initial_adapter, deadline)
            results: dict[str, Any] = {}
            splits: list[Split] = (
                ["validation", "test"] if self.experiment.evaluation.test_tasks != 0 else ["validation"]
            )
            for split in splits:
                if deadline is not None and time.monotonic() >= deadline:
                    raise Stopped
                results[split] = self.server.evaluate_once(state.round, split)
        except Stopped:
            draw_run(self.run)
            raise
        picture = draw_run(self.run)
        return RunResult(self.run.path, state.adapter, results["validation"], results.get("test"), picture)

    def close(self) -> None:
        for part in (self.engine, self.server.tracker):
            if isinstance(part, Closes):
                part.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.run.unlock()


MakeEngine = Callable[[Sites], Engine]


def assemble(
    experiment: Experiment,
    parts: Parts | None,
    run: RunFolder,
    trackers: Iterable[Tracker] = (),
    make_engine: MakeEngine | None = None,
    first: Adapter | None = None,
) -> Federation:
    """Connect the parts. The caller holds the run's lock, and may have made the first adapter already.

    Without parts there is the server alone. Its clients are on other machines, where `make_engine` reaches them, and the
    model is built only if the run has no adapter yet.
    """
    aggregator = build("aggregator", experiment.aggregator) if parts is None else parts.aggregator
    tracker = told_of(run.path, trackers, parts.model if parts else None, at_sites=parts is None)
    sites = Sites(
        names=tuple(sorted(experiment.holdings())),
        run=experiment.name,
        terms=experiment.terms(),
        plan=plan_of(aggregator),
        tracker=tracker,
        expected=expected_of(experiment),
    )
    if parts is not None:
        clients = cache(lambda: build_clients(experiment, parts, run))
        sites = replace(
            sites,
            here=lambda: Household(parts.model, parts.policy, parts.learner, clients()),
            elsewhere=partial(one_site, experiment, run.path.resolve()),
        )
    engine = build("engine", experiment.engine, sites) if make_engine is None else make_engine(sites)
    server = Server(
        run,
        engine,
        aggregator,
        experiment.checks,
        experiment.limits,
        tracker,
        experiment.participation,
        experiment.seed,
        experiment.shares(),
        {name: options.joins for name, options in experiment.clients.items()},
        experiment.evaluation.mean_of_last,
        experiment.has_library(),
    )

    def initial_adapter() -> Adapter:
        if experiment.begins_with is not None and run.last_round() is not None:
            return server.load(0).adapter  # The folder it came from may be gone.
        return beginning(experiment, parts) if first is None else first

    return Federation(experiment, run, engine, server, lambda: sites.here().clients, initial_adapter, parts)


def beginning(experiment: Experiment, parts: Parts | None) -> Adapter:
    """The adapter that the first round begins with."""
    model = build("model", experiment.model) if parts is None else parts.model
    initial: Adapter = model.initial_adapter(experiment.seed)
    return initial if experiment.begins_with is None else first_adapter(experiment.begins_with, initial)


def one_site(experiment: Experiment, folder: Path, name: str) -> Engine:
    """An engine in which one client of the experiment is the only one, for another process.

    The base model is loaded once in a process, however many clients it serves one after another.
    """
    held = {origin.client: experiment.clients[origin.client] for origin in experiment.holdings()[name].values()}
    alone = experiment.model_copy(update={"clients": held})
    parts = build_parts(alone, shared_players)
    sites = Sites(
        names=(name,),
        run=alone.name,
        terms=alone.terms(),
        plan=plan_of(parts.aggregator),
        tracker=Trackers([]),
        here=lambda: Household(
            parts.model, parts.policy, parts.learner, build_clients(alone, parts, RunFolder(folder), name)
        ),
    )
    return LocalEngine(sites)


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
    parts = None if make_engine else build_parts(experiment)
    warnings: list[Warned] = []
    start = ""
    if parts is not None and not has_begun(path):
        check_actions(parts.policy, [item for makers in parts.worlds.values() for item in makers.items()])
        learning = [name for name, options in experiment.clients.items() if experiment.learning and options.learns]
        warnings = check_start(parts, learning)
        if learning and isinstance(parts.start, DependsOnFiles):
            start = parts.start.fingerprint()
        check_start_files(path, start)
    worlds = {} if parts is None else world_versions(parts)
    check_worlds(path, worlds)
    check_start_adapter(path, experiment.begins_with)
    told = [*trackers, *build_trackers(experiment.trackers, path)]
    # Whether an adapter from outside fits is found out before anything is written.
    first = beginning(experiment, parts) if experiment.begins_with and not has_beginning(path) else None
    folder.begin(experiment.to_yaml(), experiment.digest(), start, worlds)
    warnings += restore(folder)
    if folder.manifest()["experiment"] != experiment.digest():
        folder.replace_experiment(experiment.to_yaml(), experiment.digest())
    federation = assemble(experiment, parts, folder, told, make_engine, first)
    for warning in [*warnings, *_advice(federation)]:
        federation.server.tracker.record(warning)
    return federation


def _advice(federation: Federation) -> Iterator[Warned]:
    """What somebody should know before clients share anything."""
    experiment, server = federation.experiment, federation.server
    if experiment.rounds_to_play > 0 and experiment.sharing == "all":
        yield from advice(server.aggregator, min(len(experiment.learners()), len(server.exchange.invited(1))))
        if experiment.has_library():
            yield seen_by_others(experiment.mix.name, len(experiment.learners()))


def open_run(path: str | Path, trackers: Iterable[Tracker] = (), settings: Sequence[str] = ()) -> Federation:
    """A finished or stopped run with its clients, for evaluation. The lock is held until the process ends.

    `settings` are `a.b=c` for this time, and may change nothing that makes another experiment.
    """
    folder = RunFolder.existing(Path(path))
    experiment = load_experiment(folder.path / "experiment.yaml", settings)
    if changed := differences(load_experiment(folder.path / "experiment.yaml").identity(), experiment.identity()):
        raise BadInput(
            f"{path} holds another experiment (different: {', '.join(changed)}): only what changes no result can be set "
            "here, the keys marked (*) in docs/reference.md."
        )
    parts = build_parts(experiment)
    check_worlds(folder.path, world_versions(parts))
    told = [*trackers, *build_trackers(experiment.trackers, folder.path)]
    folder.lock()
    try:
        check(folder)
        return assemble(experiment, parts, folder, told)
    except BaseException:
        folder.unlock()
        raise


def stored_experiment(folder: RunView) -> Experiment:
    """What a run was made with, to look at: the classes of its authors' own plug-ins need not be at hand."""
    folder.check_experiment()
    return load_experiment(folder.path / "experiment.yaml", stored=True)
