"""The experiment file as an object, and the place where its names become a running federation."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from fedse.engines.local import LocalEngine
from fedse.errors import BadInput, RunConflict, Stopped
from fedse.evaluation.plot import draw_run
from fedse.experience.buffer import Buffer, BufferOptions
from fedse.experience.journal import Journal
from fedse.experiment_file import explain, override, read_yaml, to_yaml
from fedse.federation.checks import CheckOptions
from fedse.federation.client import Client, EvaluationOptions, ExplorationOptions
from fedse.federation.exchange import ParticipationOptions
from fedse.federation.server import LimitOptions, Server
from fedse.federation.sites import Sites
from fedse.parts import MakePlayers, Parts, check_start, make_players, make_worlds, shared_players
from fedse.plugins import Part, PartOf, PluginOptions, build
from fedse.privacy.outgoing import Outgoing, SharingOptions
from fedse.protocols import Engine, Tracker
from fedse.runs.folder import EventLog, RunFolder
from fedse.runs.trackers import Trackers
from fedse.types import Adapter, Split

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


def _part(kind: str, default: str) -> Any:
    """The default of a slot: a plug-in with all its own defaults."""
    return Field(default_factory=lambda: PartOf(kind).default_part(default))


class ClientOptions(PluginOptions):
    """One site."""

    worlds: list[Annotated[Part, PartOf("world")]] = Field(min_length=1)
    """The worlds it owns, by name, each with options of its own if wanted."""


class Experiment(PluginOptions):
    """A whole experiment. Where the paper names a value, it is the default."""

    name: str = Field(pattern=_NAME)
    """Name of the run; its folder is runs/NAME."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything that is drawn: tasks, sampling, order of training, initial adapter."""
    rounds: int = Field(default=20, ge=0)
    """Federated rounds."""
    model: Annotated[Part, PartOf("model")]
    """The frozen base model that all clients share."""
    clients: dict[str, ClientOptions] = Field(min_length=1)
    """The sites, by name."""
    start: Annotated[Part, PartOf("start", "demonstrations")] = _part("start", "demonstrations")
    """What buffers begin with."""
    exploration: ExplorationOptions = ExplorationOptions()
    """How clients look for new experience."""
    filter: Annotated[Part, PartOf("filter", "success")] = _part("filter", "success")
    """Which trajectories are remembered."""
    buffer: BufferOptions = BufferOptions()
    """How they are remembered."""
    learner: Annotated[Part, PartOf("learner", "imitation")] = _part("learner", "imitation")
    """How an adapter is fitted to the buffer."""
    aggregator: Annotated[Part, PartOf("aggregator", "mean")] = _part("aggregator", "mean")
    """How the adapters of the clients become one."""
    checks: CheckOptions = CheckOptions()
    """Bounds an update has to keep."""
    evaluation: EvaluationOptions = EvaluationOptions()
    """How adapters are measured."""
    policy: Annotated[Part, PartOf("policy", "transformer")] = _part("policy", "transformer")
    """How replies are generated."""
    sharing: SharingOptions = SharingOptions()
    """What a client sends."""
    participation: ParticipationOptions = ParticipationOptions()
    """Who takes part in a round and how long it waits."""
    engine: Annotated[Part, PartOf("engine", "local")] = _part("engine", "local")
    """How tasks reach the clients."""
    limits: LimitOptions = LimitOptions()
    """When to give up."""

    @field_validator("clients")
    @classmethod
    def _names_are_folders(cls, clients: dict[str, ClientOptions]) -> dict[str, ClientOptions]:
        import re

        for name in clients:
            if not re.fullmatch(_NAME, name):
                raise ValueError(
                    f"the client name {name!r} may hold letters, digits, '.', '_' and '-' only, at most 100 of them"
                )
        return clients

    def to_yaml(self) -> str:
        return to_yaml(self.model_dump(mode="json"))

    def digest(self) -> str:
        return hashlib.sha256(self.to_yaml().encode()).hexdigest()

    def terms(self) -> str:
        """Digest of what server and sites must agree on, wherever they run."""
        return hashlib.sha256(to_yaml(self.model_dump(mode="json", include=set(TERMS))).encode()).hexdigest()


TERMS = (
    "name",
    "seed",
    "model",
    "start",
    "exploration",
    "filter",
    "buffer",
    "learner",
    "evaluation",
    "policy",
    "sharing",
)
"""Keys on which a client's result depends, except for its worlds, which are its own business."""


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Read a file, apply `a.b=c` settings, check everything. Raises `BadInput` with all problems it finds."""
    content, places = read_yaml(Path(path))
    override(content, settings, places)
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, Experiment, places)) from error


def build_parts(experiment: Experiment, players: MakePlayers = make_players) -> Parts:
    """Everything but the clients. `players` makes model and policy; by default they are made anew."""
    worlds = {name: make_worlds(name, options.worlds) for name, options in experiment.clients.items()}
    model, policy = players(experiment.model, experiment.policy)
    return Parts(
        model=model,
        policy=policy,
        worlds=worlds,
        start=build("start", experiment.start),
        learner=build("learner", experiment.learner, model),
        aggregator=build("aggregator", experiment.aggregator),
    )


def build_clients(experiment: Experiment, parts: Parts, run: RunFolder) -> list[Client]:
    return [
        Client(
            name=name,
            worlds=parts.worlds[name],
            chat=parts.model.chat,
            start=parts.start,
            filter=build("filter", experiment.filter),
            buffer=Buffer(
                run.client_folder(name) / "buffer.sqlite", name, parts.model.chat.fingerprint, experiment.buffer
            ),
            journal=Journal(run.client_folder(name) / "episodes"),
            learner=parts.learner,
            exploration=experiment.exploration,
            evaluation=experiment.evaluation,
            seed=experiment.seed,
            outgoing=Outgoing(run.client_folder(name) / "ledger.jsonl", experiment.sharing),
        )
        for name in sorted(experiment.clients)
    ]


@dataclass(frozen=True)
class Federation:
    """A run with everything that is needed to go on with it."""

    experiment: Experiment
    run: RunFolder
    engine: Engine
    server: Server
    make_clients: Callable[[], Sequence[Client]]
    initial_adapter: Callable[[], Adapter]

    @property
    def clients(self) -> Sequence[Client]:
        """The clients, in this process."""
        return self.make_clients()

    def close(self) -> None:
        if close := getattr(self.engine, "close", None):
            close()


MakeEngine = Callable[[Sites], Engine]


def assemble(
    experiment: Experiment,
    parts: Parts,
    run: RunFolder,
    trackers: Iterable[Tracker] = (),
) -> Federation:
    """Connect the parts. The caller holds the run's lock."""
    tracker = _tracker(run, trackers)
    clients = cache(lambda: build_clients(experiment, parts, run))
    sites = Sites(
        names=tuple(sorted(experiment.clients)),
        run=experiment.name,
        terms=experiment.terms(),
        tracker=tracker,
        here=lambda: (parts.model, parts.policy, clients()),
        elsewhere=partial(one_site, experiment, run.path.resolve()),
    )
    engine = build("engine", experiment.engine, sites)
    server = _server(experiment, run, engine, parts.aggregator, tracker)
    return Federation(experiment, run, engine, server, clients, lambda: parts.model.initial_adapter(experiment.seed))


def assemble_server(
    experiment: Experiment, run: RunFolder, make_engine: MakeEngine, trackers: Iterable[Tracker] = ()
) -> Federation:
    """The server alone: its clients are on other machines. The model is built only if the run has no adapter yet."""

    def nobody() -> Any:
        raise BadInput("the clients of this run are on other machines.")

    tracker = _tracker(run, trackers)
    names = tuple(sorted(experiment.clients))
    engine = make_engine(Sites(names, experiment.name, experiment.terms(), tracker, nobody, lambda _: nobody()))
    server = _server(experiment, run, engine, build("aggregator", experiment.aggregator), tracker)
    return Federation(
        experiment,
        run,
        engine,
        server,
        nobody,
        lambda: build("model", experiment.model).initial_adapter(experiment.seed),
    )


def _tracker(run: RunFolder, trackers: Iterable[Tracker]) -> Tracker:
    return Trackers([EventLog(run.path / "events.jsonl", time.time), *trackers])


def _server(experiment: Experiment, run: RunFolder, engine: Engine, aggregator: Any, tracker: Tracker) -> Server:
    return Server(
        run,
        engine,
        aggregator,
        experiment.checks,
        experiment.limits,
        tracker,
        experiment.participation,
        experiment.seed,
    )


def one_site(experiment: Experiment, folder: Path, name: str) -> Engine:
    """An engine in which one client of the experiment is the only one, for another process.

    The base model is loaded once in a process, however many clients it serves one after another.
    """
    alone = experiment.model_copy(update={"clients": {name: experiment.clients[name]}})
    parts = build_parts(alone, shared_players)
    sites = Sites(
        names=(name,),
        run=alone.name,
        terms=alone.terms(),
        tracker=Trackers([]),
        here=lambda: (parts.model, parts.policy, build_clients(alone, parts, RunFolder(folder))),
        elsewhere=partial(one_site, experiment, folder),
    )
    return LocalEngine(sites)


@dataclass(frozen=True)
class RunResult:
    """Where a finished run lies and what it reached."""

    folder: Path
    adapter: Adapter
    validation: Mapping[str, Any]
    test: Mapping[str, Any] | None
    """None when the experiment asks for no test."""
    picture: Path | None


def run(
    experiment: Experiment,
    runs: str | Path = "runs",
    max_minutes: float | None = None,
    trackers: Iterable[Tracker] = (),
    before: Callable[[Federation, Parts], None] = lambda *_: None,
    make_engine: MakeEngine | None = None,
) -> RunResult:
    """Run an experiment, or go on with it where it was stopped. Raises `Stopped` when `max_minutes` are over.

    With `make_engine` the clients are elsewhere: nothing of theirs is built here.
    """
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    path = Path(runs) / experiment.name
    _same_experiment(path, experiment)
    parts = None if make_engine else build_parts(experiment)
    warnings = [] if parts is None or _has_begun(path) else check_start(parts)
    folder = RunFolder.create(path, experiment.to_yaml(), experiment.digest())
    folder.lock()
    federation: Federation | None = None
    try:
        if folder.manifest()["experiment"] != experiment.digest():
            folder.replace_experiment(experiment.to_yaml(), experiment.digest())
        if parts is None:
            assert make_engine is not None
            federation = assemble_server(experiment, folder, make_engine, trackers)
        else:
            federation = assemble(experiment, parts, folder, trackers)
        for warning in warnings:
            federation.server.tracker.record("warning", **warning)
        if parts is not None:
            before(federation, parts)
        server = federation.server
        state = server.federate(experiment.rounds, federation.initial_adapter, deadline)
        results: dict[str, Any] = {}
        splits: list[Split] = ["validation", "test"] if experiment.evaluation.test_tasks != 0 else ["validation"]
        for split in splits:
            if deadline is not None and time.monotonic() >= deadline:
                raise Stopped
            results[split] = server.evaluate_once(state.round, split)
        picture = draw_run(folder)
        return RunResult(path, state.adapter, results["validation"], results.get("test"), picture)
    except Stopped:
        draw_run(folder)
        raise
    finally:
        if federation is not None:
            federation.close()
        folder.unlock()


def open_run(path: str | Path, trackers: Iterable[Tracker] = ()) -> Federation:
    """A finished or stopped run with its clients, for evaluation. The lock is held until the process ends."""
    folder = RunFolder.existing(Path(path))
    experiment = stored_experiment(folder)
    parts = build_parts(experiment)
    folder.lock()
    return assemble(experiment, parts, folder, trackers)


def stored_experiment(folder: RunFolder) -> Experiment:
    return load_experiment(folder.path / "experiment.yaml")


def _has_begun(path: Path) -> bool:
    """Whether all buffers of the run have what they begin with."""
    return (path / "manifest.json").exists() and bool(RunFolder.existing(path).last_round())


def _same_experiment(path: Path, experiment: Experiment) -> None:
    """Refuse to mix two experiments in one folder. More rounds than before are a continuation, not another experiment."""
    if not (path / "manifest.json").exists():
        return
    folder = RunFolder.existing(path)
    stored = stored_experiment(folder)
    changed = [
        key for key in Experiment.model_fields if key != "rounds" and getattr(stored, key) != getattr(experiment, key)
    ]
    if changed:
        raise RunConflict(
            f"{path} holds a run of another experiment (different: {', '.join(changed)}): give this one another name, "
            "or remove the folder."
        )
    done = folder.last_round() or 0
    if experiment.rounds < done:
        raise RunConflict(f"{path} already has {done} rounds, more than the {experiment.rounds} asked for.")
