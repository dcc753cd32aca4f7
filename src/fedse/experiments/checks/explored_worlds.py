"""What curriculum and rescue need of the worlds that clients explore, found out before anything is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fedse.errors import BadInput
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import capability
from fedse.rollouts.stepping import MakeWorld
from fedse.worlds.world import World

Worlds = Mapping[str, Mapping[str, MakeWorld]]
"""Makers of worlds, by client and label."""


def check_explored_worlds(experiment: ExperimentKeys, worlds: Worlds) -> None:
    """Raises `BadInput` for a world that does not offer what is asked of it."""
    if not experiment.exploring:
        return
    curriculum, rescue = experiment.curriculum, experiment.rescue
    explored = {name: makers for name, makers in worlds.items() if experiment.clients[name].learns}
    if capability(curriculum, "needs_hints"):
        _check_hints(explored)
    if capability(curriculum, "needs_made_tasks"):
        _check_made_tasks("curriculum", explored)
    if capability(curriculum, "needs_composed_tasks"):
        _check_composing(explored)
    if capability(rescue, "needs_made_tasks"):
        _check_made_tasks("rescue", explored)
    if capability(rescue, "needs_several_attempts"):
        _check_attempts(rescue.name, experiment.exploration.attempts)


def _check_hints(worlds: Worlds) -> None:
    for client, label in _lacking(worlds, lambda world: world.has_hints):
        raise BadInput(
            f"curriculum: it needs hints, and the world '{label}' of client '{client}' gives none: take another "
            "curriculum, or give the world a `hint` (docs/howto/world.md)."
        )


def _check_made_tasks(slot: str, worlds: Worlds) -> None:
    for client, label in _lacking(worlds, lambda world: world.makes_tasks):
        raise BadInput(
            f"{slot}: it needs tasks that worlds make, and the world '{label}' of client '{client}' makes none: take "
            f"another {slot}, or a world that makes tasks (docs/worlds.md; none does in `mode: original`)."
        )


def _check_composing(worlds: Worlds) -> None:
    for client, label in _lacking(worlds, lambda world: world.composes_tasks):
        raise BadInput(
            f"curriculum: it needs tasks that worlds compose, and the world '{label}' of client '{client}' composes none: "
            "take another curriculum (docs/worlds.md; of the worlds of the package only babyai does, in clean mode)."
        )


def _check_attempts(rescue: str, attempts: int) -> None:
    """Refuse a rescue that compares attempts at a task where there is one of each."""
    if attempts < 2:
        raise BadInput(
            f"rescue '{rescue}': it compares attempts at the same task, and there is one of each: set "
            "`exploration.attempts` to 2 or more."
        )


def _lacking(worlds: Worlds, offers: Callable[[World], bool]) -> Iterator[tuple[str, str]]:
    """Clients and their worlds that do not offer something. Worlds that are made alike are asked once."""
    asked: dict[MakeWorld, bool] = {}
    for client, makers in worlds.items():
        for label, make_world in makers.items():
            if make_world not in asked:
                asked[make_world] = offers(make_world())
            if not asked[make_world]:
                yield client, label
