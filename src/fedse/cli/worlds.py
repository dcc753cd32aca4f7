"""`fedse worlds`: what there is, whether a world keeps its promises, and one offered to others."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedse.cli.console import make_console, say
from fedse.cli.findings import tell
from fedse.cli.settings import Settings, WorldName, names_in, read_settings
from fedse.errors import MissingExtra
from fedse.plugins import known, resolve, summary
from fedse.types import SPLITS
from fedse.worlds.check import check
from fedse.worlds.reference import ceiling, floor
from fedse.worlds.speed import steps_per_second
from fedse.worlds.world import World, world_class

app = typer.Typer(help="List the worlds, or measure, check or serve one.")

_FLOOR_EPISODES = 600
"""Enough for a standard error of two points."""


def make_world(name: str, settings: list[str] | None) -> World:
    """The world with this name and these options."""
    return world_class(name)(**read_settings(settings, "mode=original"))


def modes_of(kind: type[World]) -> list[str]:
    """The values of a world's option `mode`; one empty text for a world without it."""
    field = kind.Options.model_fields.get("mode")
    return list(getattr(field.annotation, "__args__", [""])) if field else [""]


@app.callback(invoke_without_command=True)
def worlds(context: typer.Context) -> None:
    """List the worlds: what each is, its tasks and turns. `measure` plays them."""
    if context.invoked_subcommand is not None:
        return
    console = make_console()
    console.print("Counting the tasks of each world")
    table = Table(title="Worlds", title_justify="left")
    for heading in ("world", "what it is", "mode", "train / validation / test"):
        table.add_column(heading)
    table.add_column("turns", justify="right")
    for name in sorted(known("world")):
        kind = resolve("world", name)
        what = summary(kind)
        if needed := [key for key, field in kind.Options.model_fields.items() if field.is_required()]:
            table.add_row(Text(name), Text(what), "", f"needs options: {', '.join(needed)}", "")
            continue
        for number, mode in enumerate(modes_of(kind)):
            once = ("", "") if number else (Text(name), Text(what))
            try:
                made = kind(mode=mode) if mode else kind()
                table.add_row(*once, mode, sizes(made), str(made.turn_limit))
            except MissingExtra as error:
                table.add_row(*once, mode, Text(str(error)), "")
    console.print(table)
    console.print("fedse play NAME plays one, fedse worlds measure NAME measures its floor, ceiling and speed.")


def sizes(world: World) -> str:
    return " / ".join(str(len(world.tasks(split))) for split in SPLITS)


@app.command("measure")
def measure(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Worlds to measure; default: all that need no options.",
            autocompletion=names_in("world"),
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Measure floor, ceiling and speed of worlds on their test tasks; one line as soon as each is known.

    Floor: share of the tasks that random actions solve. Ceiling: share that the built-in expert solves.
    """
    console = make_console()
    for name in names or sorted(known("world")):
        kind = resolve("world", name)
        if not names and any(field.is_required() for field in kind.Options.model_fields.values()):
            continue
        chosen = settings or []
        modes = [""] if any(item.startswith("mode=") for item in chosen) else modes_of(kind)
        for mode in modes:
            label = f"{name}, {mode}" if mode else name
            try:
                world = make_world(name, [*chosen, f"mode={mode}"] if mode else chosen)
                with console.status(f"Measuring {label}"):
                    console.print(Text(f"{label}: {_measured(world)}"), soft_wrap=True)
            except MissingExtra as error:
                console.print(Text(f"{label}: {error}"), soft_wrap=True)
                break


def _measured(world: World) -> str:
    tasks = world.tasks("test")
    repeats = max(3, math.ceil(_FLOOR_EPISODES / len(tasks)))
    reached = f"{ceiling(world, tasks):.1%}" if world.has_expert else "not known"
    return (
        f"floor {floor(world, tasks, repeats):.1%}, ceiling {reached} on {len(tasks)} test tasks; "
        f"{steps_per_second(world):,.0f} steps/s of random play on one core"
    )


@app.command("check")
def check_world(name: WorldName, settings: Settings = None) -> None:
    """Check that a world keeps the promises every world makes; for authors of worlds."""
    console = make_console()
    make_world(name, settings)
    with console.status(f"Checking {name}"):
        findings = check(lambda: make_world(name, settings))
    tell(console, name, findings, "not offered")


@app.command("serve")
def serve_world(
    name: WorldName,
    settings: Settings = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; by default only this machine reaches it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8000,
    sessions: Annotated[int, typer.Option(help="Episodes that may be played at once.", min=1)] = 256,
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
