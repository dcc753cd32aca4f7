"""A model may be made for certain settings of a world: worlds of which a file says nothing else have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedse.errors import FedseError
from fedse.models.card import WorldSettings
from fedse.plugins import Choice, path_of, resolve


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
