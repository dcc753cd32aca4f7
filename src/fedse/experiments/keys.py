"""The keys of an experiment file, and what follows from them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from fedse.clients.site import ExplorationOptions, Origin
from fedse.evaluation.forgetting import LEARNED
from fedse.evaluation.learned_shares import LEARNED_FROM
from fedse.evaluation.side_by_side import AFTER_LEARNING, AS_BROADCAST
from fedse.experience.buffer import BufferOptions
from fedse.experiments.client_options import ClientOptions, numbered
from fedse.experiments.folder_names import FolderName, check_names
from fedse.experiments.methods import Method, Sharing
from fedse.federation.checks import CheckOptions
from fedse.federation.exchange import ParticipationOptions
from fedse.federation.promotion import PromotionOptions
from fedse.federation.server import LimitOptions
from fedse.plugins import Choice, ChoiceOf, ClientSlot, FilePath, PluginOptions, build, capability, resolve
from fedse.privacy.door import SendingOptions
from fedse.privacy.names import METRICS
from fedse.probes.evaluation import EvaluationOptions
from fedse.storage.strict_yaml import to_yaml
from fedse.types import Split

POOLED = "pooled"
"""Name of the client that holds the worlds of all the others."""


def written_digest(text: str) -> str:
    """Of an experiment, from what its `to_yaml` gave: writing a large one out takes seconds."""
    return hashlib.sha256(text.encode()).hexdigest()


def _choice(kind: str, default: str) -> Any:
    """The default of a slot: a plug-in with all its own defaults."""
    return Field(default_factory=lambda: ChoiceOf(kind).default_choice(default))


class ExperimentKeys(PluginOptions):
    """Each key by itself. Whether they go together is found out when an `Experiment` is made of them."""

    operational: ClassVar[frozenset[str]] = frozenset({"rounds", "trackers"})
    server_only: ClassVar[frozenset[str]] = frozenset(
        # A client's worlds are its own business; the switches that a method stands for are agreed on themselves.
        {"method", "clients", "start_adapter", "checks", "promotion", "participation", "engine", "limits", "trackers"}
    )

    name: FolderName
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
    clients: dict[str, ClientOptions] = Field(min_length=1, examples=[{"east": {"worlds": ["maze"]}}])
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

    @field_validator("clients")
    @classmethod
    def _names_are_folders(cls, clients: dict[str, ClientOptions]) -> dict[str, ClientOptions]:
        check_names(clients)
        return clients

    @property
    def has_library(self) -> bool:
        """Whether every client is sent what each of the others sent last."""
        return capability(self.mix, "needs_library")

    @property
    def rounds_alone(self) -> int:
        """Rounds at the beginning in which the mix leaves every client to its own adapter."""
        if not capability(self.mix, "begins_alone"):
            return 0
        rounds: int = build("mix", self.mix, "anybody", self.seed).rounds
        return rounds

    @property
    def measuring(self) -> list[str]:
        """Clients of the file that learn nothing."""
        return [name for name, options in self.clients.items() if not options.learns]

    @property
    def learning_clients(self) -> list[str]:
        """Clients of the file that learn, so that their buffers begin with something."""
        return [name for name, options in self.clients.items() if self.learning and options.learns]

    def start_of(self, client: str) -> Choice:
        """What the buffer of a client of the file begins with."""
        return self.clients[client].start or self.start

    def joins(self, holder: str) -> int:
        """The first round of a client that holds worlds."""
        return self.clients[holder].joins if holder in self.clients else 1

    @property
    def labelled_probes(self) -> dict[str, Choice]:
        """A name for each further probe, under which its scores are reported."""
        labels = numbered(re.split(r"[:.]", choice.name.split("#")[0])[-1] for choice in self.probes)
        return dict(zip((label.replace("#", "_") for label in labels), self.probes, strict=True))

    @property
    def learned_probes(self) -> dict[str, str]:
        """Names under which further probes tell what they find of what a site has learned, before it sends; with theirs."""
        return {
            f"{label}{LEARNED}": label
            for label, choice in self.labelled_probes.items()
            if choice.options.get("learned") and capability(choice, "plan_learned")
        }

    @property
    def reported_probes(self) -> frozenset[str]:
        """Names under which anything is told by world beside success."""
        twice = {AFTER_LEARNING, AS_BROADCAST} if self.evaluation.after_learning else set()
        learned = {LEARNED_FROM} if self.evaluation.learned_by_world else set()
        return frozenset({*self.labelled_probes, *self.learned_probes, *twice, *learned})

    @property
    def client_slots(self) -> dict[str, Choice]:
        """What is chosen for the slots of a client's round, by the names of the fields."""
        fields = type(self).model_fields.items()
        return {
            name: getattr(self, name)
            for name, field in fields
            if any(isinstance(m, ClientSlot) for m in field.metadata)
        }

    @property
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

    @property
    def works_here(self) -> bool:
        """Whether everything happens in the process that runs the experiment."""
        return self.in_process and not self.engine.options.get("processes")

    @property
    def metrics(self) -> frozenset[str]:
        """Names of what the learner measures of a lesson."""
        return METRICS | frozenset(map(str, getattr(resolve("learner", self.learner.name), "metrics", ())))

    @property
    def shares(self) -> dict[str, frozenset[str]]:
        """Names under which plug-ins of clients tell each other numbers, and the tensors of each."""
        telling = [resolve(choice.kind, choice.name) for choice in (*self.client_slots.values(), *self.probes)]
        return {
            str(kind.shares): frozenset(map(str, getattr(kind, "gives", ())))
            for kind in telling
            if hasattr(kind, "shares")
        }

    @property
    def in_process(self) -> bool:
        """Whether all clients live in the process that runs the experiment."""
        return capability(self.engine, "in_process")

    @property
    def has_noisy_mean(self) -> bool:
        """Whether there is noise on the mean of sites, the server's or their own."""
        shares = self.learning and self.sharing == "all"
        return shares and not self.aggregator.foreign and capability(self.aggregator, "draws_noise")

    @property
    def begins_with(self) -> Path | None:
        """The folder that `start_adapter` means."""
        return None if self.start_adapter is None else Path(str(self.start_adapter).replace("{seed}", str(self.seed)))

    @property
    def rounds_to_play(self) -> int:
        return self.rounds if self.learning else 0

    @property
    def closing_splits(self) -> tuple[Split, ...]:
        """On what the adapter after the last round is evaluated."""
        return ("validation", "test") if self.evaluation.test_tasks != 0 else ("validation",)

    @property
    def holdings(self) -> dict[str, dict[str, Origin]]:
        """Who holds which worlds: clients by name, each with its labels and where those worlds are written in the file."""
        apart = {
            name: {label: Origin(name, label) for label in options.labels}
            for name, options in sorted(self.clients.items())
        }
        if not self.pooled:
            return apart
        learning = [origin for name in apart if self.clients[name].learns for origin in apart[name].values()]
        labels = numbered(origin.label.split("#")[0] for origin in learning)
        measuring = {name: worlds for name, worlds in apart.items() if not self.clients[name].learns}
        return {POOLED: dict(zip(labels, learning, strict=True)), **measuring}

    @property
    def learners(self) -> list[str]:
        """Those who hold worlds to learn from, and not only to measure in."""
        holders = self.holdings.items()
        return [name for name, held in holders if all(self.clients[origin.client].learns for origin in held.values())]

    @property
    def learners_asked(self) -> int:
        """How many of them are asked in a round."""
        return self.participation.asked(len(self.learners))

    def to_yaml(self) -> str:
        return to_yaml(self.model_dump(mode="json"))

    def digest(self) -> str:
        return written_digest(self.to_yaml())

    @property
    def terms(self) -> str:
        """Digest of what server and sites must agree on, wherever they run."""
        agreed = json.dumps(
            {key: value for key, value in self.identity().items() if key not in self.server_only}, default=str
        )
        return hashlib.sha256(agreed.encode()).hexdigest()
