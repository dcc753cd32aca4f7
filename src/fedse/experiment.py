"""The experiment file as an object, and the place where its names become a running federation."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError, field_validator, model_validator

from fedse.adapters.own import OwnAdapters
from fedse.adapters.personal import PersonalOptions
from fedse.adapters.plan import plan_of
from fedse.adapters.private import PrivatePart
from fedse.errors import BadInput, RunConflict, Stopped
from fedse.evaluation.plot import draw_run
from fedse.experience.buffer import Buffer, BufferOptions
from fedse.experience.journal import Journal
from fedse.experiment_file import KeyPath, differences, explain, numbered, override, read_yaml, to_yaml
from fedse.federation.checks import CheckOptions
from fedse.federation.client import Client, EvaluationOptions, ExplorationOptions, Origin
from fedse.federation.server import LimitOptions, Server
from fedse.methods import Method, Sharing, expand
from fedse.plugins import Part, PartOf, PluginOptions, build
from fedse.protocols import Engine, Model, Policy, Start, Tracker
from fedse.rollouts.player import check_actions
from fedse.rollouts.stepping import MakeWorld
from fedse.runs.folder import EventLog, RunFolder
from fedse.runs.trackers import Trackers
from fedse.types import Adapter, Split

POOLED = "pooled"
"""Name of the client that holds the worlds of all the others."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


def _part(kind: str, default: str) -> Any:
    """The default of a slot: a plug-in with all its own defaults."""
    return Field(default_factory=lambda: PartOf(kind).default_part(default))


class ClientOptions(PluginOptions):
    """One site."""

    worlds: list[Annotated[Part, PartOf("world")]] = Field(min_length=1)
    """The worlds it owns, by name, each with options of its own if wanted."""
    learns: bool = True
    """False for a site that only measures the shared adapter: how well it does in a world it has not learned from."""

    def labels(self) -> list[str]:
        """A name for each world; a second world of the same name gets a number."""
        return numbered(part.name.rsplit(":", 1)[-1] for part in self.worlds)


class Experiment(PluginOptions):
    """A whole experiment. Where the paper names a value, it is the default."""

    operational: ClassVar[frozenset[str]] = frozenset({"rounds"})

    name: str = Field(pattern=NAME)
    """Name of the run; its folder is runs/NAME."""
    seed: int = Field(default=0, ge=0)
    """Seed of everything that is drawn: tasks, sampling, order of training, initial adapter."""
    method: Method | None = "fed_se"
    """One word for `learning`, `exploring`, `sharing` and `pooled` (docs/comparing.md); null for an unnamed mixture."""
    rounds: int = Field(default=20, ge=0)
    """Rounds of exploring, learning and aggregating."""
    learning: bool = True
    """False measures the base model as it is and plays no round."""
    exploring: bool = True
    """False learns from what buffers begin with and nothing else."""
    sharing: Sharing = "all"
    """What clients share of their adapters: `none` leaves each with an adapter of its own, measured in its own worlds."""
    pooled: bool = False
    """True puts the worlds of all clients, and what their buffers begin with, into the hands of one client."""
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

    @model_validator(mode="before")
    @classmethod
    def _method_in_full(cls, content: Any) -> Any:
        return expand(content) if isinstance(content, Mapping) else content

    @model_validator(mode="after")
    def _switches_go_together(self) -> Experiment:
        measuring = [name for name, options in self.clients.items() if not options.learns]
        if self.learning and len(measuring) == len(self.clients):
            raise ValueError("every client has `learns: false`, so nobody would learn: let one of them learn")
        if self.learning and self.sharing == "none" and measuring:
            raise ValueError(
                f"client '{measuring[0]}' has `learns: false`, and with `sharing: none` nobody shares with it"
            )
        if self.sharing == "none" and self.pooled:
            raise ValueError("`pooled: true` leaves one client with nobody to share with: leave `sharing` out")
        if self.sharing == "none" and self.engine.name != "local":
            raise ValueError("clients that share nothing need no connection: use `engine: local` with `sharing: none`")
        if self.pooled and POOLED in measuring:
            raise ValueError(f"a client beside the pooled one cannot be called '{POOLED}': give it another name")
        if self.learning and not self.exploring and self.start.name == "none":
            raise ValueError(
                "without exploring, clients learn from what their buffers begin with, and `start: none` gives them nothing"
            )
        if self.learning and not self.exploring and not self.buffer.history:
            raise ValueError(
                "`buffer.history: false` learns from exploration alone, and this experiment explores nothing"
            )
        return self

    @property
    def rounds_to_play(self) -> int:
        return self.rounds if self.learning else 0

    def holdings(self) -> dict[str, dict[str, Origin]]:
        """Who holds which worlds: clients by name, each with its labels and where those worlds are written in the file."""
        apart = {
            name: {label: Origin(name, label) for label in options.labels()}
            for name, options in sorted(self.clients.items())
        }
        if not self.pooled:
            return apart
        learning = [origin for name in apart if self.clients[name].learns for origin in apart[name].values()]
        labels = numbered(origin.label.split("#")[0] for origin in learning)
        measuring = {name: worlds for name, worlds in apart.items() if not self.clients[name].learns}
        return {POOLED: dict(zip(labels, learning, strict=True)), **measuring}

    @field_validator("clients")
    @classmethod
    def _names_are_folders(cls, clients: dict[str, ClientOptions]) -> dict[str, ClientOptions]:
        import re

        for name in clients:
            if not re.fullmatch(NAME, name):
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
    return validated(content, places)


def validated(content: Mapping[str, Any], places: Mapping[KeyPath, str]) -> Experiment:
    """The experiment that a file's content describes."""
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise BadInput(explain(error, Experiment, places)) from error


@dataclass(frozen=True)
class Parts:
    """An experiment's objects that do not need a run folder. Building them finds out whether they can be built."""

    model: Model
    policy: Policy
    worlds: Mapping[str, Mapping[str, MakeWorld]]
    start: Start
    learner: Any
    aggregator: Any


def build_parts(experiment: Experiment) -> Parts:
    alike: dict[str, MakeWorld] = {}
    worlds = {name: _worlds(name, options, alike) for name, options in experiment.clients.items()}
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


def _worlds(client: str, options: ClientOptions, alike: dict[str, MakeWorld]) -> dict[str, MakeWorld]:
    """Makers of a client's worlds by label. Worlds that are written alike have one maker, so that clients can share them."""
    makers: dict[str, MakeWorld] = {}
    for position, (label, part) in enumerate(zip(options.labels(), options.worlds, strict=True)):
        written = part.model_dump_json()
        if written not in alike:
            alike[written] = partial(build, "world", part)
            try:
                alike[written]()
            except ValidationError as error:
                raise BadInput(f"clients.{client}.worlds.{position}: {error.errors()[0]['msg']}") from error
        makers[label] = alike[written]
    return makers


def build_clients(experiment: Experiment, parts: Parts, run: RunFolder) -> list[Client]:
    return [
        Client(
            name=name,
            worlds={label: parts.worlds[origin.client][origin.label] for label, origin in origins.items()},
            chat=parts.model.chat,
            start=parts.start,
            filter=build("filter", experiment.filter),
            buffer=Buffer(
                run.client_folder(name) / "buffer.sqlite", name, parts.model.chat.fingerprint, experiment.buffer
            ),
            journal=Journal(run.client_folder(name) / "episodes"),
            learner=parts.learner,
            exploration=experiment.exploration if experiment.exploring else None,
            evaluation=experiment.evaluation,
            seed=experiment.seed,
            plan=plan_of(parts.aggregator),
            private_part=PrivatePart(run.client_folder(name) / "private"),
            personal=experiment.personal,
            own=OwnAdapters(run.client_folder(name) / "adapters") if experiment.sharing == "none" else None,
            origins=origins,
            learns=all(experiment.clients[origin.client].learns for origin in origins.values()),
        )
        for name, origins in experiment.holdings().items()
    ]


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
    """The shared one. Where clients share nothing it is the beginning, and theirs are in clients/NAME/adapters."""
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
    if reason := conflict(path, experiment):
        raise RunConflict(reason)
    parts = build_parts(experiment)
    warnings: list[Mapping[str, Any]] = []
    start = ""
    if not _has_begun(path):
        check_actions(parts.policy, [item for makers in parts.worlds.values() for item in makers.items()])
        warnings = _check_start(experiment, parts)
        anyone_learns = experiment.learning and any(options.learns for options in experiment.clients.values())
        if anyone_learns and hasattr(parts.start, "fingerprint"):
            start = parts.start.fingerprint()
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
        state = server.federate(experiment.rounds_to_play, federation.initial_adapter, deadline)
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


def _check_start(experiment: Experiment, parts: Parts) -> list[Mapping[str, Any]]:
    """Find out before anything is written whether buffers can begin as asked; what to warn of, each thing once."""
    check = getattr(parts.start, "check", None)
    if check is None:
        return []
    warnings = [
        warning
        for client, worlds in parts.worlds.items()
        if experiment.learning and experiment.clients[client].learns
        for label, make_world in worlds.items()
        for warning in check(client, label, make_world(), parts.model)
    ]
    return list({warning["message"]: warning for warning in warnings}.values())


def conflict(path: Path, experiment: Experiment) -> str:
    """Why a folder cannot go on with an experiment: it holds another one. More rounds, or another value of what changes no
    result, go on."""
    if not (path / "manifest.json").exists():
        return ""
    folder = RunFolder.existing(path)
    stored = stored_experiment(folder)
    if changed := differences(stored.identity(), experiment.identity()):
        return (
            f"{path} holds a run of another experiment (different: {', '.join(changed)}): give this one another name, "
            "or remove the folder."
        )
    done = folder.last_round() or 0
    if experiment.rounds < done:
        return f"{path} already has {done} rounds, more than the {experiment.rounds} asked for."
    return ""


def _same_start(path: Path, start: str) -> None:
    """Some buffers may have begun with what the files held when the run was made; the others must not get something else."""
    if (path / "manifest.json").exists() and RunFolder.existing(path).manifest().get("start", start) != start:
        raise RunConflict(
            f"{path} was begun with another content of the file that `start` names, and its first round is not complete: "
            "restore the file, give this experiment another name, or remove the folder."
        )
