"""The experiment file as an object."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedse.adapters.plan import plan_of, withholds
from fedse.clients.client import EVALUATION
from fedse.clients.site import ExplorationOptions, Origin
from fedse.errors import BadInput
from fedse.evaluation.learned_shares import LEARNED_FROM
from fedse.evaluation.side_by_side import AFTER_LEARNING, AS_BROADCAST
from fedse.experience.buffer import BufferOptions
from fedse.experiments.client_options import ClientOptions, numbered
from fedse.experiments.file import PLACES, explain, override
from fedse.experiments.lessons import check_lessons
from fedse.experiments.methods import Method, Sharing, expand
from fedse.experiments.old_keys import with_mix, with_new_names
from fedse.experiments.private_learning import check_private
from fedse.experiments.private_sites import check_private_sites
from fedse.experiments.promoted import check_promotion
from fedse.experiments.secure_sums import check_secure_sum
from fedse.experiments.world_settings import with_world_settings
from fedse.federation.checks import CheckOptions
from fedse.federation.exchange import ParticipationOptions
from fedse.federation.promotion import PromotionOptions
from fedse.federation.server import LimitOptions
from fedse.plugins import STORED, Choice, ChoiceOf, ClientSlot, FilePath, PluginOptions, build, capability, resolve
from fedse.privacy.door import SendingOptions
from fedse.probes.evaluation import EvaluationOptions
from fedse.storage.strict_yaml import KeyPath, read_yaml, to_yaml

POOLED = "pooled"
"""Name of the client that holds the worlds of all the others."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


def _choice(kind: str, default: str) -> Any:
    """The default of a slot: a plug-in with all its own defaults."""
    return Field(default_factory=lambda: ChoiceOf(kind).default_choice(default))


class Experiment(PluginOptions):
    """A whole experiment. Where the paper names a value, it is the default."""

    operational: ClassVar[frozenset[str]] = frozenset({"rounds", "trackers"})
    server_only: ClassVar[frozenset[str]] = frozenset(
        # A client's worlds are its own business; the switches that a method stands for are agreed on themselves.
        {"method", "clients", "start_adapter", "checks", "promotion", "participation", "engine", "limits", "trackers"}
    )

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
    model: Annotated[Choice, ChoiceOf("model")]
    """The frozen base model that all clients share."""
    clients: dict[str, ClientOptions] = Field(min_length=1)
    """The sites, by name."""
    start: Annotated[Choice, ChoiceOf("start", "demonstrations")] = _choice("start", "demonstrations")
    """What buffers begin with."""
    start_adapter: FilePath | None = None
    """Folder of an adapter in PEFT's layout with which the first round begins: another run's, an exported or a merged one;
    `{seed}` in it stands for the seed. It has the model's tensors, ranks and scale. Null is the model's initial adapter."""
    exploration: ExplorationOptions = ExplorationOptions()
    """How much clients explore."""
    curriculum: Annotated[Choice, ClientSlot("curriculum", "uniform")] = _choice("curriculum", "uniform")
    """Which tasks they explore."""
    rescue: Annotated[Choice, ClientSlot("rescue", "none")] = _choice("rescue", "none")
    """What is made of failed explorations."""
    judge: Annotated[Choice, ClientSlot("judge", "world")] = _choice("judge", "world")
    """What an exploration is worth."""
    filter: Annotated[Choice, ChoiceOf("filter", "success")] = _choice("filter", "success")
    """Which trajectories are remembered."""
    buffer: BufferOptions = BufferOptions()
    """How they are remembered."""
    learner: Annotated[Choice, ChoiceOf("learner", "imitation")] = _choice("learner", "imitation")
    """How an adapter is fitted to the buffer."""
    aggregator: Annotated[Choice, ChoiceOf("aggregator", "mean")] = _choice("aggregator", "mean")
    """How the adapters of the clients become one."""
    mix: Annotated[Choice, ChoiceOf("mix", "broadcast")] = _choice("mix", "broadcast")
    """What each client makes of the broadcast adapter, and what it keeps for itself."""
    checks: CheckOptions = CheckOptions()
    """Bounds an update has to keep."""
    promotion: PromotionOptions | None = None
    """When a shared adapter that went wrong is taken back; null never does."""
    evaluation: EvaluationOptions = EvaluationOptions()
    """How adapters are measured."""
    probes: list[Annotated[Choice, ChoiceOf("probe")]] = Field(default_factory=list)
    """What else is measured of the adapter that enters a round, by name or class."""
    policy: Annotated[Choice, ChoiceOf("policy", "transformer")] = _choice("policy", "transformer")
    """How replies are generated."""
    sending: SendingOptions = SendingOptions()
    """What a client sends."""
    participation: ParticipationOptions = ParticipationOptions()
    """Who takes part in a round and how long it waits."""
    engine: Annotated[Choice, ChoiceOf("engine", "local")] = _choice("engine", "local")
    """How tasks reach the clients."""
    limits: LimitOptions = LimitOptions()
    """When to give up."""
    trackers: list[Annotated[Choice, ChoiceOf("tracker")]] = Field(default_factory=list)
    """Who is told what happens, beside the terminal and events.jsonl, by name or class."""

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, content: Any) -> Any:
        return expand(with_world_settings(with_mix(content))) if isinstance(content, Mapping) else content

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
        if self.sharing == "none" and (capability(self.mix, "needs_others") or capability(self.mix, "needs_library")):
            raise ValueError(
                f"`mix: {self.mix.name}` mixes with what others send, and with `sharing: none` nobody sends: leave `mix` out"
            )
        if capability(self.mix, "needs_plain_mean") and not capability(self.aggregator, "plain_mean"):
            raise ValueError(
                f"`mix: {self.mix.name}` takes its own share out of the mean, and the aggregator is "
                f"'{self.aggregator.name}': use `aggregator: mean`"
            )
        if self.has_library() and not self.aggregator.foreign:
            self._check_library()
        if self.sharing == "none" and not (self.in_process or self.engine.foreign):
            raise ValueError("clients that share nothing need no connection: use `engine: local` with `sharing: none`")
        labels = list(self.labelled_probes())
        taken = {EVALUATION, AFTER_LEARNING, AS_BROADCAST, LEARNED_FROM}
        if len({*labels} - taken) < len(labels) or not all(label.isidentifier() for label in labels):
            raise ValueError(f"probes need names of their own, which are words: {', '.join(labels)}")
        self._check_newcomers()
        self._check_mean_of_last()
        check_secure_sum(self)
        check_lessons(self)
        check_private(self)
        check_private_sites(self)
        check_promotion(self)
        if self.sharing == "none" and self.checks.governance is not None:
            raise ValueError("with `sharing: none` there are no updates to compare: leave `checks.governance` out")
        if self.evaluation.learned_by_world and all(len(worlds) == 1 for worlds in self.holdings().values()):
            raise ValueError(
                "every site has one world and learns from it alone: leave `evaluation.learned_by_world` out"
            )
        taking_part = self.participation
        asked = taking_part.asked(sum(options.joins == 1 for options in self.clients.values()))
        if not self.pooled and taking_part.min_clients > asked:
            raise ValueError(
                f"`participation.min_clients` is {taking_part.min_clients}, and {asked} clients are asked in a "
                "round: choose fewer"
            )
        everybody = taking_part.fraction == taking_part.quorum == 1 and taking_part.deadline_minutes is None
        if self.learning and self.sharing == "none" and not everybody:
            raise ValueError(
                "clients that share nothing wait for nobody: leave `fraction`, `quorum` and `deadline_minutes` of "
                "`participation` out with `sharing: none`"
            )
        if self.pooled and POOLED in measuring:
            raise ValueError(f"a client beside the pooled one cannot be called '{POOLED}': give it another name")
        for name in measuring:
            if self.learning and self.clients[name].start is not None:
                raise ValueError(f"client '{name}' has `learns: false` and begins with nothing: leave its `start` out")
        learning = [name for name in self.clients if name not in measuring]
        empty = [name for name in learning if capability(self.start_of(name), "empty")]
        if self.learning and not self.exploring and (empty == learning if self.pooled else empty):
            raise ValueError(
                "without exploring, clients learn from what their buffers begin with, and `start: none` gives client "
                f"'{empty[0]}' nothing"
            )
        if self.learning and not self.exploring and not self.buffer.history:
            raise ValueError(
                "after its first round a client with `buffer.history: false` learns from exploration alone, and this "
                "experiment explores nothing"
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(
        cls, content: Any, handler: ModelWrapValidatorHandler[Experiment], info: ValidationInfo
    ) -> Experiment:
        """The last of the validators, so that it hears of what all of them found."""
        try:
            return handler(content)
        except ValidationError as error:
            raise BadInput(explain(error, cls, (info.context or {}).get(PLACES, {(): cls.__name__}))) from error

    def _check_library(self) -> None:
        """What a client sends has to be all that it learned, on top of what everybody has."""
        aggregator = build("aggregator", self.aggregator)
        if withholds(plan_of(aggregator)) or getattr(aggregator, "adds_ranks", False):
            raise ValueError(
                f"`mix: {self.mix.name}` mixes whole adapters of the clients, and with `aggregator: {self.aggregator.name}` "
                "clients keep a factor or are sent further ranks beside it: use an aggregator such as `mean` or `fedexp`"
            )

    def has_library(self) -> bool:
        """Whether every client is sent what each of the others sent last."""
        return capability(self.mix, "needs_library")

    def _check_newcomers(self) -> None:
        if not self.learning:
            return
        if all(options.joins > 1 for options in self.clients.values()):
            raise ValueError(
                "every client joins after round 1, so nobody would be there: let one of them join in round 1"
            )
        for name, options in self.clients.items():
            if options.joins > max(1, self.rounds):
                raise ValueError(
                    f"client '{name}' has `joins: {options.joins}` and would never take part, because the experiment has "
                    f"{self.rounds} rounds: let it join earlier, or raise `rounds`"
                )
            if self.pooled and options.learns and options.joins > 1:
                raise ValueError(
                    f"client '{name}' has `joins: {options.joins}`, and `pooled: true` leaves one client with all worlds "
                    "from the first round on: set its `joins` to 1"
                )

    def _check_mean_of_last(self) -> None:
        if self.evaluation.mean_of_last == 1:
            return
        if self.sharing == "none":
            raise ValueError(
                "`evaluation.mean_of_last` is of shared adapters, and with `sharing: none` there are none: leave it out"
            )
        if capability(self.mix, "needs_plain_mean") or self.has_library():
            raise ValueError(
                f"`mix: {self.mix.name}` works on what each client sent in the last round, which a mean over rounds does "
                "not hold: leave `evaluation.mean_of_last` out"
            )
        if capability(self.aggregator, "new_factors"):
            raise ValueError(
                f"`aggregator: {self.aggregator.name}` makes new factors in every round, whose mean over rounds says "
                "nothing: leave `evaluation.mean_of_last` out"
            )

    def start_of(self, client: str) -> Choice:
        """What the buffer of a client of the file begins with."""
        return self.clients[client].start or self.start

    def joins(self, holder: str) -> int:
        """The first round of a client that holds worlds."""
        return self.clients[holder].joins if holder in self.clients else 1

    def labelled_probes(self) -> dict[str, Choice]:
        """A name for each further probe, under which its scores are reported."""
        labels = numbered(re.split(r"[:.]", choice.name.split("#")[0])[-1] for choice in self.probes)
        return dict(zip((label.replace("#", "_") for label in labels), self.probes, strict=True))

    def reported_probes(self) -> frozenset[str]:
        """Names under which anything is told by world beside success."""
        twice = {AFTER_LEARNING, AS_BROADCAST} if self.evaluation.after_learning else set()
        learned = {LEARNED_FROM} if self.evaluation.learned_by_world else set()
        return frozenset({*self.labelled_probes(), *twice, *learned})

    def client_slots(self) -> dict[str, Choice]:
        """What is chosen for the slots of a client's round, by the names of the fields."""
        fields = type(self).model_fields.items()
        return {
            name: getattr(self, name)
            for name, field in fields
            if any(isinstance(m, ClientSlot) for m in field.metadata)
        }

    def plugin_names(self) -> set[str]:
        """Of everything in the experiment that can be chosen."""
        chosen = [value for name in type(self).model_fields if isinstance(value := getattr(self, name), Choice)]
        chosen += [
            *self.probes,
            *self.trackers,
            *(choice for options in self.clients.values() for choice in options.worlds),
        ]
        chosen += [options.start for options in self.clients.values() if options.start is not None]
        return {choice.name for choice in chosen}

    def works_here(self) -> bool:
        """Whether everything happens in the process that runs the experiment."""
        return self.in_process and not self.engine.options.get("processes")

    def shares(self) -> frozenset[str]:
        """Names under which plug-ins of clients tell each other numbers."""
        telling = [resolve(choice.kind, choice.name) for choice in (*self.client_slots().values(), *self.probes)]
        return frozenset(str(kind.shares) for kind in telling if hasattr(kind, "shares"))

    @property
    def in_process(self) -> bool:
        """Whether all clients live in the process that runs the experiment."""
        return capability(self.engine, "in_process")

    @property
    def begins_with(self) -> Path | None:
        """The folder that `start_adapter` means."""
        return None if self.start_adapter is None else Path(str(self.start_adapter).replace("{seed}", str(self.seed)))

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

    def learners(self) -> list[str]:
        """Those who hold worlds to learn from, and not only to measure in."""
        holders = self.holdings().items()
        return [name for name, held in holders if all(self.clients[origin.client].learns for origin in held.values())]

    @field_validator("clients")
    @classmethod
    def _names_are_folders(cls, clients: dict[str, ClientOptions]) -> dict[str, ClientOptions]:
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

    def terms(self) -> str:
        """Digest of what server and sites must agree on, wherever they run."""
        agreed = json.dumps(
            {key: value for key, value in self.identity().items() if key not in self.server_only}, default=str
        )
        return hashlib.sha256(agreed.encode()).hexdigest()


def load_experiment(path: str | Path, settings: Sequence[str] = (), stored: bool = False) -> Experiment:
    """Read a file, apply `a.b=c` settings, check everything. Raises `BadInput` with all problems it finds.

    One that a run has `stored` is read without the classes of its authors' own plug-ins, to look at results.
    """
    content, places = read_yaml(Path(path))
    override(content, settings, places)
    return validated(content, places, stored)


def experiment_of(run: Path, settings: Sequence[str] = (), stored: bool = False) -> Experiment:
    """What a run folder holds, as `load_experiment` reads it; it may be older than the names of today's keys."""
    content, places = read_yaml(run / "experiment.yaml")
    content = with_new_names(content)
    override(content, settings, places)
    return validated(content, places, stored)


def validated(content: Mapping[str, Any], places: Mapping[KeyPath, str], stored: bool = False) -> Experiment:
    """The experiment that a file's content describes."""
    return Experiment.model_validate(content, context={STORED: stored, PLACES: places})
