"""The experiment file as an object, and the place where its names become a running federation."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError, field_validator

from fedse.adapters.personal import PersonalOptions
from fedse.adapters.plan import plan_of
from fedse.adapters.private import PrivatePart
from fedse.errors import BadInput, RunConflict, Stopped
from fedse.evaluation.plot import draw_run
from fedse.experience.buffer import Buffer, BufferOptions
from fedse.experience.journal import Journal
from fedse.experiment_file import explain, override, read_yaml, to_yaml
from fedse.federation.checks import CheckOptions
from fedse.federation.client import Client, EvaluationOptions, ExplorationOptions
from fedse.federation.server import LimitOptions, Server
from fedse.plugins import Part, PartOf, PluginOptions, build
from fedse.protocols import Engine, Model, Policy, Start, Tracker
from fedse.runs.folder import EventLog, RunFolder
from fedse.types import Adapter, Split
from fedse.worlds.world import World

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

    operational: ClassVar[frozenset[str]] = frozenset({"rounds"})

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
    personal: PersonalOptions = PersonalOptions()
    """What each client keeps for itself."""
    checks: CheckOptions = CheckOptions()
    """Bounds an update has to keep."""
    evaluation: EvaluationOptions = EvaluationOptions()
    """How adapters are measured."""
    policy: Annotated[Part, PartOf("policy", "transformer")] = _part("policy", "transformer")
    """How replies are generated."""
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


def load_experiment(path: str | Path, settings: Sequence[str] = ()) -> Experiment:
    """Read a file, apply `a.b=c` settings, check everything. Raises `BadInput` with all problems it finds."""
    content, places = read_yaml(Path(path))
    override(content, settings, places)
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, Experiment, places)) from error


@dataclass(frozen=True)
class Parts:
    """An experiment's objects that do not need a run folder. Building them finds out whether they can be built."""

    model: Model
    policy: Policy
    worlds: Mapping[str, Mapping[str, Callable[[], World]]]
    start: Start
    learner: Any
    aggregator: Any


def build_parts(experiment: Experiment) -> Parts:
    worlds = {name: _worlds(name, options) for name, options in experiment.clients.items()}
    model = build("model", experiment.model)
    if experiment.personal.rank and not hasattr(model, "network"):
        raise BadInput(
            f"personal.rank: the model '{experiment.model.name}' has no LoRA adapter to put another beside: leave it at 0."
        )
    return Parts(
        model=model,
        policy=build("policy", experiment.policy, model),
        worlds=worlds,
        start=build("start", experiment.start),
        learner=build("learner", experiment.learner, model),
        aggregator=build("aggregator", experiment.aggregator),
    )


def _worlds(client: str, options: ClientOptions) -> dict[str, Callable[[], World]]:
    """Makers of a client's worlds by label; a second world of the same name is labelled with a number."""
    makers: dict[str, Callable[[], World]] = {}
    for position, part in enumerate(options.worlds):
        base = part.name.rsplit(":", 1)[-1]
        alike = sum(label.split("#")[0] == base for label in makers)
        label = f"{base}#{alike + 1}" if alike else base
        maker = partial(build, "world", part)
        try:
            maker()
        except ValidationError as error:
            raise BadInput(f"clients.{client}.worlds.{position}: {error.errors()[0]['msg']}") from error
        makers[label] = maker
    return makers


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
            plan=plan_of(parts.aggregator),
            private_part=PrivatePart(run.client_folder(name) / "private"),
            personal=experiment.personal,
        )
        for name in sorted(experiment.clients)
    ]


class Trackers:
    """Tells several trackers."""

    def __init__(self, trackers: Iterable[Tracker]) -> None:
        self.trackers = list(trackers)

    def record(self, event: str, **fields: Any) -> None:
        for tracker in list(self.trackers):
            try:
                tracker.record(event, **fields)
            except Exception:
                # Observing a run may never end it: a tracker that fails (a closed terminal) is not asked again.
                self.trackers.remove(tracker)


@dataclass(frozen=True)
class Federation:
    """A run with everything that is needed to go on with it."""

    experiment: Experiment
    run: RunFolder
    engine: Engine
    server: Server
    clients: Sequence[Client]
    initial_adapter: Callable[[], Adapter]


def assemble(experiment: Experiment, parts: Parts, run: RunFolder, trackers: Iterable[Tracker] = ()) -> Federation:
    """Connect the parts. The caller holds the run's lock."""
    tracker = Trackers([EventLog(run.path / "events.jsonl", time.time), *trackers])
    clients = build_clients(experiment, parts, run)
    engine = build("engine", experiment.engine, clients, parts.model, parts.policy, tracker)
    server = Server(run, engine, parts.aggregator, experiment.checks, experiment.limits, tracker)
    return Federation(experiment, run, engine, server, clients, lambda: parts.model.initial_adapter(experiment.seed))


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
) -> RunResult:
    """Run an experiment, or go on with it where it was stopped. Raises `Stopped` when `max_minutes` are over."""
    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    path = Path(runs) / experiment.name
    _same_experiment(path, experiment)
    parts = build_parts(experiment)
    warnings: list[Mapping[str, Any]] = []
    start = ""
    if not _has_begun(path):
        warnings = _check_start(parts)
        start = parts.start.fingerprint() if hasattr(parts.start, "fingerprint") else ""
        _same_start(path, start)
    folder = RunFolder.create(path, experiment.to_yaml(), experiment.digest(), start)
    folder.lock()
    try:
        if folder.manifest()["experiment"] != experiment.digest():
            folder.replace_experiment(experiment.to_yaml(), experiment.digest())
        federation = assemble(experiment, parts, folder, trackers)
        for warning in warnings:
            federation.server.tracker.record("warning", **warning)
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


def _check_start(parts: Parts) -> list[Mapping[str, Any]]:
    """Find out before anything is written whether buffers can begin as asked; what to warn of, each thing once."""
    check = getattr(parts.start, "check", None)
    if check is None:
        return []
    warnings = [
        warning
        for client, worlds in parts.worlds.items()
        for label, make_world in worlds.items()
        for warning in check(client, label, make_world(), parts.model)
    ]
    return list({warning["message"]: warning for warning in warnings}.values())


def _same_experiment(path: Path, experiment: Experiment) -> None:
    """Refuse to mix two experiments in one folder. More rounds, or another value of what changes no result, go on."""
    if not (path / "manifest.json").exists():
        return
    folder = RunFolder.existing(path)
    stored = stored_experiment(folder)
    if changed := _differences(stored.identity(), experiment.identity()):
        raise RunConflict(
            f"{path} holds a run of another experiment (different: {', '.join(changed)}): give this one another name, "
            "or remove the folder."
        )
    done = folder.last_round() or 0
    if experiment.rounds < done:
        raise RunConflict(f"{path} already has {done} rounds, more than the {experiment.rounds} asked for.")


def _same_start(path: Path, start: str) -> None:
    """Some buffers may have begun with what the files held when the run was made; the others must not get something else."""
    if (path / "manifest.json").exists() and RunFolder.existing(path).manifest().get("start", start) != start:
        raise RunConflict(
            f"{path} was begun with another content of the file that `start` names, and its first round is not complete: "
            "restore the file, give this experiment another name, or remove the folder."
        )


def _differences(one: Any, other: Any, key: str = "") -> list[str]:
    """The keys that differ, as far down as both have the same ones."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [
            found
            for name in one
            for found in _differences(one[name], other[name], f"{key}.{name}" if key else str(name))
        ]
    return [] if one == other else [key]
