"""Worlds that have fewer tasks than an experiment asks for: all of them are played, and no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from fedse.errors import WorldBroke
from fedse.events import Warned
from fedse.experiments.keys import ExperimentKeys
from fedse.plugins import PluginOptions, resolve
from fedse.rollouts.stepping import MakeWorld
from fedse.types import Split
from fedse.worlds.answers import tasks_of

_TOLD = 8
"""Worlds that a warning names."""
_SPLITS: Mapping[Split, str] = {"train": "training", "validation": "validation", "test": "test"}


def draws_on_training(curriculum: object) -> bool:
    """Whether a curriculum explores the world's training tasks alone. How many others can be made is not known before."""
    making = ("needs_made_tasks", "needs_composed_tasks")
    return getattr(curriculum, "keeps_to_exploration", False) and not any(
        getattr(curriculum, name, False) for name in making
    )


def fewer_than_asked(experiment: ExperimentKeys, worlds: Mapping[str, Mapping[str, MakeWorld]]) -> list[Warned]:
    """A warning for each key that asks for more tasks than some worlds have. By a default nobody has asked for anything."""
    asked = list(_asked(experiment))
    if not asked:
        return []
    splits = {split for _, split, _ in asked}
    counted: dict[MakeWorld, dict[Split, int]] = {}
    fewer: dict[str, list[str]] = {key: [] for key, _, _ in asked}
    for client, makers in worlds.items():
        for label, make_world in makers.items():
            # Worlds that are made alike are asked once.
            if make_world not in counted:
                counted[make_world] = _counts(make_world, splits)
            for key, split, wanted in asked:
                plays = split != "train" or experiment.clients[client].learns
                if plays and (there := counted[make_world].get(split, wanted)) < wanted:
                    fewer[key].append(f"{client}: {label} {there:,}")
    return [_warning(key, split, wanted, fewer[key]) for key, split, wanted in asked if fewer[key]]


def _warning(key: str, split: Split, wanted: int, fewer: Sequence[str]) -> Warned:
    more = f" and {len(fewer) - _TOLD:,} more" if len(fewer) > _TOLD else ""
    message = (
        f"{key} asks for {wanted:,} {_SPLITS[split]} tasks of each world, and these have fewer, which are all played: "
        f"{', '.join(fewer[:_TOLD])}{more}."
    )
    return Warned(kind="fewer_tasks", message=message, details={"key": key})


def _asked(experiment: ExperimentKeys) -> Iterator[tuple[str, Split, int]]:
    if experiment.rounds_to_play and experiment.exploring:
        curriculum = experiment.curriculum
        if draws_on_training(resolve(curriculum.kind, curriculum.name)):
            yield from _chosen("exploration", experiment.exploration, {"tasks": "train"})
    measured: dict[str, Split] = {"tasks": "validation", "tasks_per_round": "validation", "test_tasks": "test"}
    yield from _chosen("evaluation", experiment.evaluation, measured)


def _chosen(group: str, options: PluginOptions, splits: Mapping[str, Split]) -> Iterator[tuple[str, Split, int]]:
    for name, split in splits.items():
        asked = getattr(options, name)
        if asked is not None and asked != type(options).model_fields[name].default:
            yield f"{group}.{name}", split, asked


def _counts(make_world: MakeWorld, splits: Collection[Split]) -> dict[Split, int]:
    with suppress(WorldBroke):  # A world that breaks is told of when it is played.
        world = make_world()
        return {split: len(tasks_of(world, split)) for split in splits}
    return {}
