"""What is told at the start of a run whose model was made for other worlds, or for other settings of its worlds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedse.events import Warned
from fedse.experiments.options import Experiment
from fedse.experiments.world_settings import class_of, made_for
from fedse.models.card import WorldSettings
from fedse.storage.strict_yaml import in_line

KIND = "not_made_for"


def not_made_for(experiment: Experiment) -> list[Warned]:
    """One warning for each world that the model will not understand."""
    settings = made_for(experiment.model.name)
    return list(_warnings(experiment, settings)) if settings else []


def _warnings(experiment: Experiment, settings: Mapping[type[Any] | None, WorldSettings]) -> Iterator[Warned]:
    model = experiment.model.name
    for client, options in experiment.clients.items():
        for label, world in zip(options.labels, options.worlds, strict=True):
            where = f"{client}, {label}"
            made = settings.get(class_of("world", world.name))
            if made is None:
                listed = ", ".join(sorted(str(kind.name) for kind in settings if kind is not None))
                yield _warned(
                    f"{where}: the model {model} was not made for this world, and hardly any of its actions will be valid: "
                    f"use one of {listed}, or another model (`fedse models`).",
                    client,
                    label,
                )
            elif other := {key: world.options[key] for key, value in made.form.items() if world.options[key] != value}:
                needed = {key: made.form[key] for key in other}
                yield _warned(
                    f"{where}: the model {model} was made for {in_line(needed)}, and this experiment has {in_line(other)}: "
                    f"hardly any of its actions will be valid. Change these settings, or write `worlds: [{world.name}]`, "
                    f"which has all that {model} was made for (`fedse models list {model}`).",
                    client,
                    label,
                )


def _warned(message: str, client: str, world: str) -> Warned:
    return Warned(kind=KIND, message=message, details={"client": client, "world": world})
