"""Runs read for a comparison: what each reached on a split, under which settings, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedse.errors import BadInput
from fedse.evaluation.measured import (
    Measured,
    Place,
    agreements,
    costs,
    has_evaluation,
    outcomes,
    success_curves,
    world_name,
)
from fedse.experiments.options import Experiment
from fedse.experiments.running import stored_experiment
from fedse.plugins import nearest_or_all
from fedse.runs.reading import RunView

SPLITS = ("test", "validation")
"""On which finished runs are compared, the better one first."""


def read_runs(paths: Sequence[Path], split: str) -> tuple[str, list[Measured]]:
    """The split that was chosen and what each run reached on it."""
    if split not in ("", *SPLITS):
        raise BadInput(f"--split {split}: {nearest_or_all(split, SPLITS, 'Known:')}.")
    folders = [RunView.existing(path) for path in paths]
    missing: dict[str, list[str]] = {}
    for candidate in [split] if split else SPLITS:
        missing[candidate] = [str(folder.path) for folder in folders if not has_evaluation(folder, candidate)]
        if not missing[candidate]:
            return candidate, [_read(*named, candidate) for named in zip(folders, _names(folders), strict=True)]
    wanted, without = next(iter(missing.items())) if split else ("validation", missing["validation"])
    raise BadInput(
        f"{without[0]} has no {wanted} evaluation of its last round: run its experiment to the end, or play it with "
        f"`fedse eval {without[0]} --split {wanted}`."
    )


def places(experiment: Experiment) -> dict[Place, str]:
    """The name that each world has in the experiment file, whoever holds it."""
    return {
        (holder, label): world_name(*origin)
        for holder, origins in experiment.holdings.items()
        for label, origin in origins.items()
    }


def tasks_of(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Settings of each world, by the name it has in the experiment file: equal ones have the same tasks."""
    return {
        # Where a world's server listens makes no other world of it.
        world_name(name, label): {
            key: value for key, value in choice.model_dump(mode="json").items() if key in choice.identity()
        }
        for name, options in experiment.clients.items()
        for label, choice in zip(options.labels, options.worlds, strict=True)
    }


def _names(folders: Sequence[RunView]) -> list[str]:
    """The folders' names, with their places where folders in different places are named alike."""
    alike = Counter(folder.path.name for folder in folders)
    return [folder.path.name if alike[folder.path.name] == 1 else str(folder.path) for folder in folders]


def _read(folder: RunView, name: str, split: str) -> Measured:
    experiment = stored_experiment(folder)
    held = places(experiment)
    number = folder.last_round() or 0
    played, errors = outcomes(folder, split, number, held)
    outside = {"name", "seed", "clients"}
    every = dict(_flat(experiment.model_dump(mode="json", exclude=outside), ""))
    method = dict(_flat({key: value for key, value in experiment.comparable().items() if key not in outside}, ""))
    worlds = {f"worlds.{name}": settings for name, settings in tasks_of(experiment).items()}
    own = {
        f"clients.{name}.{key}": value
        for name, options in experiment.clients.items()
        for key, value in options.model_dump(mode="json", exclude={"worlds"}, exclude_none=True).items()
    }
    return Measured(
        name=name,
        seed=experiment.seed,
        method=experiment.method or "mixture",
        settings={**{key: value for key, value in every.items() if key in method}, **worlds, **own},
        round=number,
        worlds=played,
        errors=errors,
        curves=success_curves(folder, held),
        costs=costs(folder, experiment.sharing == "all", experiment.pooled),
        agreements=agreements(folder),
        roundings={key: value for key, value in every.items() if key not in method},
        made_with=folder.makers(),
    )


def _flat(content: Any, prefix: str) -> list[tuple[str, Any]]:
    if not isinstance(content, dict):
        return [(prefix, content)]
    return [item for key, value in content.items() for item in _flat(value, f"{prefix}.{key}" if prefix else key)]
