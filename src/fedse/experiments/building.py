"""Components become clients, in the folder of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedse.aggregators.rule import SUM_AND_SQUARES
from fedse.clients.adapters import ClientAdapters
from fedse.clients.client import EVALUATION, Client
from fedse.clients.experience import Experience
from fedse.clients.site import Origin, Place, Site
from fedse.evaluation.side_by_side import AFTER_LEARNING
from fedse.experience.buffer import Buffer
from fedse.experience.journal import Journal
from fedse.experiments.components import Components
from fedse.experiments.known_before import names_of
from fedse.experiments.options import Experiment
from fedse.experiments.secure_sums import member_on_this_machine
from fedse.federation.sites import Household
from fedse.plugins import build, capability
from fedse.privacy.answered import AnsweredOnce
from fedse.privacy.door import Door
from fedse.privacy.noise import KEY_FILE, NoiseKey
from fedse.privacy.secure_sum import SumMember
from fedse.probes.after_learning import AfterLearning
from fedse.probes.evaluation import Evaluation
from fedse.protocols import Mix
from fedse.runs.folder import RunFolder

ANSWERED = "answered.safetensors"
"""File of a client that learns under noise."""


def build_clients(
    experiment: Experiment,
    components: Components,
    run: RunFolder,
    only: str = "",
    member: Callable[[Experiment, RunFolder, str], SumMember | None] = member_on_this_machine,
) -> list[Client]:
    """The clients of an experiment, or one of them. `member` makes what each needs for secure sums."""
    run.keep_clients_private()
    learners = frozenset(experiment.learners)
    return [
        _build_client(
            experiment,
            components,
            run.client_folder(name),
            name,
            origins,
            name in learners,
            member(experiment, run, name),
        )
        for name, origins in experiment.holdings.items()
        if only in ("", name)
    ]


def build_household(experiment: Experiment, components: Components, run: RunFolder, only: str = "") -> Household:
    """The clients of an experiment, or one of them, with what they share in this process."""
    clients = build_clients(experiment, components, run, only)
    return Household(components.model, components.policy, components.learner, clients)


def build_mix(experiment: Experiment, client: str) -> Mix:
    """What a client makes of what it is sent."""
    mix: Mix = build("mix", experiment.mix, client, experiment.seed)
    return mix


def _build_client(
    experiment: Experiment,
    components: Components,
    folder: Path,
    name: str,
    origins: Mapping[str, Origin],
    learns: bool,
    member: SumMember | None,
) -> Client:
    if member is not None:
        member = replace(member, squares=SUM_AND_SQUARES in getattr(components.aggregator, "promises", ()))
    mix = build_mix(experiment, name)
    names = names_of(experiment, origins, tuple(origins))
    site = Site(
        name=name,
        places={
            label: Place(label, components.worlds[origin.client][origin.label], origin)
            for label, origin in origins.items()
        },
        chat=components.model.chat,
        seed=experiment.seed,
        folder=folder,
        exploration=experiment.exploration if experiment.exploring else None,
        learns=learns,
        joins=experiment.joins(name),
        context=components.model.context,
    )
    buffer = Buffer(folder / "buffer.sqlite", name, components.model.chat.fingerprint, experiment.buffer)
    evaluation = Evaluation(site, experiment.evaluation)
    probes = {label: build("probe", choice, site) for label, choice in experiment.labelled_probes.items()}
    learned_probes: dict[str, Any] = {told: probes[label] for told, label in experiment.learned_probes.items()}
    if again := experiment.evaluation.after_learning:
        learned_probes[AFTER_LEARNING] = AfterLearning(evaluation, again)
    ledger = folder / "ledger.jsonl"
    noisy = learns and capability(experiment.learner, "draws_noise")
    sharing = member is not None and capability(experiment.aggregator, "noise_at_sites")
    key = NoiseKey(folder / KEY_FILE, not ledger.exists()) if noisy or sharing else None
    once = AnsweredOnce(folder / ANSWERED) if noisy else None
    return Client(
        site=site,
        adapters=ClientAdapters(folder, components.plan, mix, experiment.sharing == "all", site.notebook("trial")),
        experience=Experience(
            site,
            components.start,
            build("filter", experiment.filter),
            buffer,
            Journal(folder / "episodes"),
            failures=capability(experiment.learner, "learns_from_failures"),
            noise=key if noisy else None,
            own=site.notebook("learner") if capability(experiment.learner, "learns_from_own_adapter") else None,
            attempts=capability(experiment.learner, "learns_from_attempts"),
        ),
        probes={EVALUATION: evaluation, **probes},
        learned_probes=learned_probes,
        door=Door(
            ledger, experiment.sending, names, member, once, components.aggregator.share(key) if sharing else None
        ),
        learned_by_world=experiment.evaluation.learned_by_world and len(origins) > 1,
        **{slot: build(choice.kind, choice, site) for slot, choice in experiment.client_slots.items()},
    )
