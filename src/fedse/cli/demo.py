"""`fedse demo`: four sites, four worlds, the model inside the package: self-evolution in a few minutes."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from fedse.cli import run
from fedse.cli.console import make_console

WHAT_IT_LEARNS = (
    "nano, the demo's model, knows the rules and actions of these worlds, and takes a particular wrong action in three "
    "kinds of situation per world; from its own successes it can learn what is right there. Whether a rise is learning, or "
    "could be had by a phrase, a temperature or one trained constant, is what scripts/probe_nano.py tries (docs/models.md)."
)


def demo(
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the experiment, e.g. --set rounds=8."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the complete experiment, estimate its time and disk space, and stop."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print how many tokens were prefilled, decoded and padded.")
    ] = False,
) -> None:
    """Run the demo: four sites share an adapter of the model `nano` and learn only from their own successes."""
    if not dry_run:  # Which prints an experiment and nothing else.
        make_console().print(WHAT_IT_LEARNS, markup=False)
    with as_file(files("fedse.cli") / "demo.yaml") as file:
        run.run(file, settings, runs, dry_run, verbose=verbose)
