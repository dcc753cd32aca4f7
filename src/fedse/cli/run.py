"""`fedse run FILE`: run an experiment, or resume it."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedse.cli import interrupts
from fedse.cli.console import NO_PICTURE, make_console, say, warn

if TYPE_CHECKING:
    from fedse.experiments.assembling import Federation
    from fedse.experiments.options import Experiment


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the experiment, e.g. --set learner.epochs=3."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the complete experiment, estimate its time and disk space, and stop."),
    ] = False,
    max_minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after the round in which this time runs out; rerun to resume."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print how many tokens were prefilled, decoded and padded.")
    ] = False,
) -> None:
    """Run an experiment. Rerun the same command to resume a run that was interrupted."""
    from fedse.cli.progress import Progress, counted
    from fedse.cli.tables import change_table, evaluation_table
    from fedse.errors import Stopped
    from fedse.evaluation.curves import curves
    from fedse.experiments.options import load_experiment
    from fedse.experiments.running import prepare
    from fedse.runs.reading import RunView

    experiment = load_experiment(file, settings or [])
    if dry_run:
        say(experiment.to_yaml(), nl=False)
        _estimate_alone(experiment, runs)
        return
    console = make_console()
    # Models take seconds to load, and the estimate tries them out: whoever waits knows for what.
    sites = counted(len(experiment.clients), "client")
    console.print(
        f"{experiment.name}: preparing model {experiment.model.name} and {sites}", soft_wrap=True, markup=False
    )
    progress = Progress(console, experiment.rounds_to_play, verbose)
    folder = runs / experiment.name

    deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    try:
        with progress, prepare(experiment, runs, [progress]) as federation:
            console.print(
                f"Watch it on a page, from another terminal: {_typed()} view {folder}", soft_wrap=True, markup=False
            )
            left = experiment.rounds_to_play - (federation.run.last_round() or 0)
            if left and experiment.in_process:
                _print_estimate(console, federation, left, folder)
            result = federation.finish(deadline)
    except Stopped:
        console.print(
            f"Stopped after {max_minutes:g} minutes at a safe point. The same command resumes the run: {folder}"
        )
        return
    except KeyboardInterrupt:
        console.print(f"\nInterrupted. Nothing complete is lost; the same command resumes the run: {folder}")
        raise typer.Exit(interrupts.CODE) from None
    if experiment.rounds_to_play:
        console.print(change_table(curves(RunView.existing(result.folder))))
    if result.test is not None:
        console.print(evaluation_table(result.test, f"test, adapter after round {result.test['round']}"))
    if result.picture is None:
        console.print(NO_PICTURE, markup=False)
    else:
        console.print(f"Picture: {result.picture}", soft_wrap=True)
    warn(console, result.warnings)
    console.print(f"Run: {result.folder}   ({_typed()} show {result.folder})", soft_wrap=True, markup=False)
    console.print(f"Open it as a page: {_typed()} view {result.folder}", soft_wrap=True, markup=False)


def _typed() -> str:
    """The command as its user types it: with its path where the shell does not find it, as after `make demo`."""
    program = Path(sys.argv[0])
    return str(program) if program.name == "fedse" and shutil.which("fedse") is None else "fedse"


def _estimate_alone(experiment: Experiment, runs: Path) -> None:
    """On the error output, so that the other holds the experiment and nothing else; the run's folder is not touched."""
    from fedse.cli.progress import Progress
    from fedse.errors import BadInput, FedseError
    from fedse.experiments.running import prepare

    console = make_console(err=True)
    if not experiment.in_process:
        console.print("No estimate: the work is done in other processes.")
        return
    console.print("Loading the model for an estimate; Ctrl-C leaves it out.")
    try:
        with (
            TemporaryDirectory(prefix="fedse-estimate-") as place,
            Progress(console, experiment.rounds_to_play) as warned,
            prepare(experiment.model_copy(update={"trackers": []}), place, [warned]) as federation,
        ):
            _print_estimate(console, federation, experiment.rounds_to_play, runs)
    except BadInput:  # What the run itself would be refused for.
        raise
    except FedseError as error:
        console.print(f"No estimate: {error}", soft_wrap=True, markup=False)
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.CODE) from None


def _print_estimate(console: Console, federation: Federation, rounds: int, folder: Path) -> None:
    """What `rounds` rounds take, and whether the disk of a folder, which may not be there yet, has room for them."""
    import shutil

    from fedse.cli.progress import counted, duration
    from fedse.errors import WorldBroke
    from fedse.experiments.estimate import estimate

    console.print("Estimating: a few episodes of each site and a short lesson of each kind of world")
    adapter, components = federation.initial_adapter(), federation.components
    assert components is not None
    try:
        found = estimate(federation.clients, components.model, components.policy, components.learner, adapter, rounds)
    except WorldBroke as error:
        console.print(f"No estimate: {error}", soft_wrap=True, markup=False)
        return
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    console.print(
        f"{counted(rounds, 'round')}, {counted(len(federation.clients), 'client')}, {counted(found.episodes, 'episode')}, "
        f"adapter of {adapter.size:,} values: roughly {duration(found.seconds)} "
        f"and {found.bytes / 1e6:,.0f} MB of disk ({free / 1e9:,.0f} GB free).",
        soft_wrap=True,
    )
    if found.bytes > free:
        console.print("[bold red]This is more than the disk has left.[/]")
