"""A model may be made for certain settings of a world: worlds of which a file says nothing else have them, and whoever asks
for others is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedse.errors import FedseError
from fedse.events import Warned
from fedse.experiments.keys import ExperimentKeys
from fedse.models.card import WorldSettings
from fedse.plugins import Choice, path_of, resolve
from fedse.storage.strict_yaml import in_line

NOT_MADE_FOR = "not_made_for"


def made_for(model: str) -> dict[type[Any] | None, WorldSettings]:
    """By the class of each world, what a model's card says; empty for a model that is there for any world."""
    card = getattr(class_of("model", model), "card", None)
    return {class_of("world", name): settings for name, settings in getattr(card, "worlds", {}).items()}


def class_of(kind: str, name: str) -> type[Any] | None:
    """None for a path, a name on a hub, or a mistake, which is told where the name is read."""
    try:
        return resolve(kind, name)
    except FedseError:
        return None


def with_world_settings(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """An experiment's content, with what its model was made for in worlds that say nothing about it."""
    clients = content.get("clients")
    settings = made_for(_name(content.get("model")))
    if not settings or not isinstance(clients, Mapping):
        return content
    filled = {
        name: {**options, "worlds": for_worlds(settings, options["worlds"])}
        if isinstance(options, Mapping) and isinstance(options.get("worlds"), list)
        else options
        for name, options in clients.items()
    }
    return {**content, "clients": filled}


def for_worlds(settings: Mapping[type[Any] | None, WorldSettings], worlds: list[Any]) -> list[Any]:
    """Worlds as a file has them. One that says anything about its form is left as it is, and so is what it says of tasks."""
    return [_filled(settings.get(class_of("world", _name(world))), world) for world in worlds]


def not_made_for(experiment: ExperimentKeys) -> list[Warned]:
    """One warning for each world that the model will not understand."""
    settings = made_for(experiment.model.name)
    return list(_warnings(experiment, settings)) if settings else []


def _filled(settings: WorldSettings | None, world: Any) -> Any:
    if settings is None or isinstance(world, Choice):
        return world
    given = world if isinstance(world, Mapping) else {"name": world}
    if given.keys() & settings.form.keys():
        return world
    tasks = {} if given.keys() & settings.tasks.keys() else settings.tasks
    return {**given, **settings.form, **tasks}


def _name(chosen: Any) -> str:
    """Of a plug-in, in whatever way it is given; empty where none can be told."""
    if isinstance(chosen, Choice):
        return chosen.name
    if isinstance(chosen, Mapping):
        chosen = chosen.get("name")
    return path_of(chosen) if isinstance(chosen, type) else chosen if isinstance(chosen, str) else ""


def _warnings(experiment: ExperimentKeys, settings: Mapping[type[Any] | None, WorldSettings]) -> Iterator[Warned]:
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
    return Warned(kind=NOT_MADE_FOR, message=message, details={"client": client, "world": world})
