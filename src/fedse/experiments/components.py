"""The objects of an experiment that need no run folder, and how each of them is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import ValidationError

from fedse.errors import BadInput, FedseError
from fedse.events import Warned
from fedse.experiments.client_options import ClientOptions
from fedse.plugins import Choice, build
from fedse.protocols import CanBeChecked, Model, Policy, Start
from fedse.rollouts.stepping import MakeWorld
from fedse.starts.by_client import StartsByClient
from fedse.worlds.answers import BREAKING, reason, tasks_of
from fedse.worlds.contract import ContractOptions, UnderContract
from fedse.worlds.training_part import TrainingPart, part_of
from fedse.worlds.world import World


@dataclass(frozen=True)
class Components:
    """An experiment's objects that do not need a run folder. Building them finds out whether they can be built."""

    model: Model
    policy: Policy
    worlds: Mapping[str, Mapping[str, MakeWorld]]
    start: Start
    learner: Any
    aggregator: Any


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
    made: World = build("world", choice)
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


def check_hints(worlds: Mapping[str, Mapping[str, MakeWorld]]) -> None:
    """Find out before anything is played whether the worlds that clients explore give hints."""
    for client, label in _lacking(worlds, lambda world: world.has_hints):
        raise BadInput(
            f"curriculum: it needs hints, and the world '{label}' of client '{client}' gives none: take another "
            "curriculum, or give the world a `hint` (docs/howto/world.md)."
        )


def check_made_tasks(slot: str, worlds: Mapping[str, Mapping[str, MakeWorld]]) -> None:
    """The same of tasks that worlds make, which the plug-in in this slot needs."""
    for client, label in _lacking(worlds, lambda world: world.makes_tasks):
        raise BadInput(
            f"{slot}: it needs tasks that worlds make, and the world '{label}' of client '{client}' makes none: take "
            f"another {slot}, or a world that makes tasks (docs/worlds.md; none does in `mode: original`)."
        )


def check_composing(worlds: Mapping[str, Mapping[str, MakeWorld]]) -> None:
    """The same of tasks that worlds compose of others."""
    for client, label in _lacking(worlds, lambda world: world.composes_tasks):
        raise BadInput(
            f"curriculum: it needs tasks that worlds compose, and the world '{label}' of client '{client}' composes none: "
            "take another curriculum (docs/worlds.md; of the worlds of the package only babyai does, in clean mode)."
        )


def check_attempts(rescue: str, attempts: int) -> None:
    """Refuse a rescue that compares attempts at a task where there is one of each."""
    if attempts < 2:
        raise BadInput(
            f"rescue '{rescue}': it compares attempts at the same task, and there is one of each: set "
            "`exploration.attempts` to 2 or more."
        )


def _lacking(
    worlds: Mapping[str, Mapping[str, MakeWorld]], offers: Callable[[World], bool]
) -> Iterator[tuple[str, str]]:
    """Clients and their worlds that do not offer something. Worlds that are made alike are asked once."""
    asked: dict[MakeWorld, bool] = {}
    for client, makers in worlds.items():
        for label, make_world in makers.items():
            if make_world not in asked:
                asked[make_world] = offers(make_world())
            if not asked[make_world]:
                yield client, label


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


def check_start(components: Components, learning: Collection[str]) -> list[Warned]:
    """Find out before anything is written whether the buffers of the clients that learn can begin as asked; what to warn of,
    each thing once."""
    if not isinstance(components.start, CanBeChecked):
        return []
    warnings = [
        warning
        for client, worlds in components.worlds.items()
        if client in learning
        for label, make_world in worlds.items()
        for warning in components.start.check(client, label, make_world(), components.model)
    ]
    return list({warning.message: warning for warning in warnings}.values())
