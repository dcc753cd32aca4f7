"""`fedse worlds`: what there is, whether a world keeps its promises, and one offered to others."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from fedse.cli.console import make_console, say
from fedse.cli.findings import tell
from fedse.cli.settings import Name, Settings, complaint, read_settings
from fedse.errors import BadInput, MissingExtra
from fedse.plugins import known, resolve
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor
from fedse.worlds.speed import steps_per_second
from fedse.worlds.world import World

app = typer.Typer(help="List the worlds, check one, or serve one.")

_FLOOR_EPISODES = 600
"""Enough for a standard error of two points."""


def make_world(name: str, settings: list[str] | None) -> World:
    """The world with this name and these options."""
    kind = resolve("world", name)
    if not issubclass(kind, World):
        raise BadInput(f"'{name}' is not a world: its class does not inherit from fedse.worlds.world.World.")
    options = read_settings(settings, "mode=original")
    try:
        return kind(**options)
    except ValidationError as error:
        raise BadInput(f"{name}: {complaint(error, kind.Options)}.") from error


def modes_of(kind: type[World]) -> list[str]:
    """The values of a world's option `mode`; one empty text for a world without it."""
    field = kind.Options.model_fields.get("mode")
    return list(getattr(field.annotation, "__args__", [""])) if field else [""]


@app.callback(invoke_without_command=True)
def worlds(context: typer.Context) -> None:
    """List the worlds with floor and ceiling on their test tasks, measured now."""
    if context.invoked_subcommand is not None:
        return
    console = make_console()
    table = Table(title="Worlds")
    table.add_column("world")
    table.add_column("mode")
    table.add_column("tasks\n(train / validation / test)", justify="right")
    for heading in ("turns", "floor", "ceiling", "steps/s"):
        table.add_column(heading, justify="right")
    with console.status("Measuring floors, ceilings and speeds"):
        for name in sorted(known("world")):
            try:
                kind = resolve("world", name)
                if needed := [key for key, field in kind.Options.model_fields.items() if field.is_required()]:
                    table.add_row(name, "", f"needs options: {', '.join(needed)}")
                    continue
                for mode in modes_of(kind):
                    table.add_row(name, mode, *_measured(kind(mode=mode) if mode else kind()))
            except MissingExtra as error:
                table.add_row(name, "", Text(str(error)))
    console.print(table)
    console.print(
        "Floor: share of the test tasks that random actions solve. Ceiling: share that the built-in expert solves. "
        "Steps/s: random play on one core."
    )


def _measured(world: World) -> list[str]:
    tasks = world.tasks("test")
    repeats = max(3, math.ceil(_FLOOR_EPISODES / len(tasks)))
    return [
        " / ".join(str(len(world.tasks(split))) for split in SPLITS),
        str(world.turn_limit),
        f"{floor(world, tasks, repeats):.1%}",
        f"{ceiling(world, tasks):.1%}" if world.has_expert else "not known",
        f"{steps_per_second(world):,.0f}",
    ]


@app.command("check")
def check_world(name: Name, settings: Settings = None) -> None:
    """Check that a world keeps the promises every world makes; for authors of worlds."""
    console = make_console()
    make_world(name, settings)
    with console.status(f"Checking {name}"):
        findings = check(lambda: make_world(name, settings))
    tell(console, name, findings)


@app.command("serve")
def serve_world(
    name: Name,
    settings: Settings = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default only this machine reaches it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8000,
    sessions: Annotated[int, typer.Option(help="Episodes that may be played at once.", min=1)] = 64,
) -> None:
    """Offer a world to others in OpenEnv's protocol, until Ctrl-C."""
    from fedse.worlds.serving.server import WorldServer

    world = make_world(name, settings)
    with WorldServer(world.name, lambda: make_world(name, settings), host, port, sessions) as server:
        say(f"{world.name} is served at {server.url} in OpenEnv's protocol. Ctrl-C ends it.")
        if server.reached_by_others:
            say("Whoever reaches this address can play the world and read its tasks.", err=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
