"""The objects of an experiment that need no run folder, and how each of them is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import ValidationError

from fedse.adapters.plan import Plan, plan_of
from fedse.errors import BadInput, FedseError
from fedse.experiments.checks.explored_worlds import check_explored_worlds
from fedse.experiments.client_options import ClientOptions
from fedse.experiments.options import Experiment
from fedse.plugins import Choice, build, capability, is_inline
from fedse.protocols import Model, Policy, Start
from fedse.rollouts.stepping import MakeWorld
from fedse.starts.by_client import StartsByClient
from fedse.worlds.answers import BREAKING, reason, tasks_of
from fedse.worlds.contract import ContractOptions, UnderContract
from fedse.worlds.training_part import TrainingPart, part_of
from fedse.worlds.world import World, world_class


@dataclass(frozen=True)
class Components:
    """An experiment's objects that do not need a run folder. Building them finds out whether they can be built."""

    model: Model
    policy: Policy
    worlds: Mapping[str, Mapping[str, MakeWorld]]
    start: Start
    learner: Any
    aggregator: Any

    @property
    def plan(self) -> Plan:
        """What of the adapter clients train and send."""
        return plan_of(self.aggregator)


MakePlayers = Callable[[Choice, Choice], tuple[Model, Policy]]


def make_players(model: Choice, policy: Choice) -> tuple[Model, Policy]:
    made = build("model", model)
    return made, build("policy", policy, made)


_IN_USE: dict[str, tuple[Model, Policy]] = {}
"""Model and policy of this process, for all clients it serves one after another."""


def shared_players(model: Choice, policy: Choice) -> tuple[Model, Policy]:
    wanted = repr((model, policy))
    if wanted not in _IN_USE:
        _IN_USE[wanted] = make_players(model, policy)
    return _IN_USE[wanted]


def build_components(experiment: Experiment, players: MakePlayers = make_players) -> Components:
    """Everything but the clients. `players` makes model and policy; by default they are made anew.

    A model may take minutes: what does not need it is made, and looked at, before.
    """
    if not experiment.works_here and (lost := sorted(filter(is_inline, experiment.plugin_names))):
        raise BadInput(
            f"{lost[0]} was given as a class that cannot be imported, and this engine works in other processes: put it into "
            "a module, or use `engine: local` without processes."
        )
    alike: dict[str, MakeWorld] = {}
    worlds = {name: make_worlds(name, options, alike) for name, options in experiment.clients.items()}
    start = make_start({name: experiment.start_of(name) for name in experiment.clients})
    aggregator = build("aggregator", experiment.aggregator)
    check_explored_worlds(experiment, worlds)
    model, policy = players(experiment.model, experiment.policy)
    if capability(experiment.mix, "needs_lora") and not hasattr(model, "network"):
        raise BadInput(
            f"mix '{experiment.mix.name}': the model '{experiment.model.name}' has no LoRA adapter for it to work on: "
            "leave `mix` out."
        )
    return Components(
        model=model,
        policy=policy,
        worlds=worlds,
        start=start,
        learner=build("learner", experiment.learner, model),
        aggregator=aggregator,
    )


def make_worlds(client: str, options: ClientOptions, alike: dict[str, MakeWorld]) -> dict[str, MakeWorld]:
    """Makers of a client's worlds by label. Worlds written alike have one maker, kept in `alike`: clients can share them."""
    makers: dict[str, MakeWorld] = {}
    for position, (label, choice) in enumerate(zip(options.labels, options.worlds, strict=True)):
        written = f"{choice.model_dump_json()} {options.training!r} {options.contract!r}"
        if written not in alike:
            alike[written] = partial(_make_world, choice, options.training, options.contract)
            try:
                _check_part(client, label, alike[written]())
            except ValidationError as error:
                raise BadInput(f"clients.{client}.worlds.{position}: {error.errors()[0]['msg']}") from error
            except FedseError:
                raise
            except BREAKING as error:
                raise BadInput(
                    f"clients.{client}.worlds.{position}: the world '{choice.name}' could not be made ({reason(error)}): "
                    f"try it with `fedse worlds check {choice.name}`."
                ) from error
        makers[label] = alike[written]
    return makers


def _make_world(choice: Choice, training: TrainingPart | None, contract: ContractOptions | None) -> World:
    made = world_class(choice.name)(**choice.options)
    if training is not None:
        made.training_part = training
    return made if contract is None else cast(World, UnderContract(made, contract))


def _check_part(client: str, label: str, world: World) -> None:
    part = part_of(world)
    if part is not None and not tasks_of(world, "train"):
        raise BadInput(
            f"clients.{client}.training: part {part.part} of {part.of} holds none of the training tasks of the world "
            f"'{label}': choose fewer parts."
        )


def make_start(choices: Mapping[str, Choice]) -> Start:
    """What the buffers of all clients begin with, by client. Those that are written alike share one."""
    alike: dict[str, Start] = {}
    for choice in choices.values():
        written = choice.model_dump_json()
        if written not in alike:
            alike[written] = build("start", choice)
    if len(alike) == 1:
        return next(iter(alike.values()))
    return StartsByClient({client: alike[choice.model_dump_json()] for client, choice in choices.items()})
