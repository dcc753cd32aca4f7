"""`fedse run FILE`: run an experiment, or go on with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedse.cli import interrupts
from fedse.cli.console import make_console, say

if TYPE_CHECKING:
    from fedse.experiments.assembling import Federation


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. --set learner.epochs=3.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the complete experiment and stop.")] = False,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after the round in which this time is over; run again to go on.")
    ] = None,
) -> None:
    """Run an experiment. The same command goes on where an interrupted run stopped."""
    from fedse.cli.progress import Progress
    from fedse.cli.tables import change_table, evaluation_table
    from fedse.errors import Stopped
    from fedse.evaluation.curves import curves
    from fedse.experiments.options import load_experiment
    from fedse.experiments.running import prepare
    from fedse.runs.reading import RunView

    experiment = load_experiment(file, settings or [])
    if dry_run:
        say(experiment.to_yaml(), nl=False)
        return
    console = make_console()
    # Models take seconds to load, and the estimate tries them out: whoever waits knows for what.
    count = len(experiment.clients)
    console.print(
        f"{experiment.name}: preparing model {experiment.model.name} and {count} clients", soft_wrap=True, markup=False
    )
    progress = Progress(console, experiment.rounds_to_play)
    folder = runs / experiment.name

    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    try:
        with progress, prepare(experiment, runs, [progress]) as federation:
            console.print(f"Watch it on a page, from another terminal: fedse view {folder}", soft_wrap=True)
            left = experiment.rounds_to_play - (federation.run.last_round() or 0)
            if left and experiment.in_process:
                _print_estimate(console, federation, left)
            result = federation.finish(deadline)
    except Stopped:
        console.print(f"Stopped after {max_minutes:g} minutes at a safe point. The same command goes on: {folder}")
        return
    except KeyboardInterrupt:
        console.print(f"\nInterrupted. Nothing complete is lost; the same command goes on: {folder}")
        raise typer.Exit(interrupts.CODE) from None
    if experiment.rounds_to_play:
        console.print(change_table(curves(RunView.existing(result.folder))))
    if result.test is not None:
        console.print(evaluation_table(result.test, f"test, adapter after round {result.test['round']}"))
    if result.picture is None:
        console.print("No picture: matplotlib is not installed (pip install 'fedse[plots]').", markup=False)
    else:
        console.print(f"Picture: {result.picture}", soft_wrap=True)
    console.print(f"Run: {result.folder}   (fedse show {result.folder})", soft_wrap=True)
    console.print(f"Open it as a page: fedse view {result.folder}", soft_wrap=True)


def _print_estimate(console: Console, federation: Federation, rounds: int) -> None:
    import shutil

    from fedse.cli.progress import duration
    from fedse.errors import WorldBroke
    from fedse.experiments.estimate import estimate

    adapter, components = federation.initial_adapter(), federation.components
    assert components is not None
    try:
        found = estimate(federation.clients, components.model, components.policy, components.learner, adapter, rounds)
    except WorldBroke as error:
        console.print(f"No estimate: {error}", soft_wrap=True, markup=False)
        return
    free = shutil.disk_usage(federation.run.path).free
    console.print(
        f"{rounds} rounds, {len(federation.clients)} clients, {found.episodes:,} episodes, "
        f"adapter of {adapter.size:,} values: roughly {duration(found.seconds)} "
        f"and {found.bytes / 1e6:,.0f} MB of disk ({free / 1e9:,.0f} GB free).",
        soft_wrap=True,
    )
    if found.bytes > free:
        console.print("[bold red]This is more than the disk has left.[/]")
