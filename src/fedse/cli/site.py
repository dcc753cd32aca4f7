"""`fedse site`: one participant of a federation over several machines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli import interrupts

app = typer.Typer(no_args_is_help=True, help="One participant of a federation over several machines.")


@app.callback()
def site() -> None:
    """Keeps `run` a command of its own."""


@app.command("run")
def run(file: Annotated[Path, typer.Argument(help="The site's file, from the kit that the hub made.")]) -> None:
    """Work for the hub until stopped. Worlds, trajectories and buffer stay on this machine."""
    from fedse.apps.site_file import load_site
    from fedse.engines.flower.quiet import prepare

    prepare("fedse site")
    from fedse.apps.private import private
    from fedse.apps.site import only_one, run_site

    def say(text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {text}")

    loaded = load_site(file)
    try:
        with interrupts.tidy_when_terminated(), private(loaded.options.folder), only_one(loaded):
            run_site(loaded, say)
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.CODE) from None
