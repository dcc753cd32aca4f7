"""`fedse sweep FILE`: run a grid of methods, variants, settings and seeds, or resume one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedse.cli.console import make_console, warn
from fedse.cli.progress import duration
from fedse.cli.tables import percent

if TYPE_CHECKING:
    from fedse.sweeps.grid import Cell
    from fedse.sweeps.processes import Result


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep file.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the experiment in all cells."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only runs with such a name: fedalt-s1, 'fedalt-*', '*-s1'."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time; each gets its share of the cores.")] = 1,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop all runs when this time is over; rerun the command to resume.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run and stop.")] = False,
) -> None:
    """Run a grid of experiments. Rerun the same command to resume: what is done is skipped."""
    from fedse.sweeps.grid import cells, read_sweep

    grid, base, places = read_sweep(file, settings or [])
    made = cells(grid, base, places, runs, only or [])
    console = make_console()
    if run_cells(console, made, processes, max_minutes, dry_run):
        # What was left out of the sweep may be there, begun and not finished.
        done = " ".join(f"{runs / grid.name}/{pattern}" for pattern in only or ["*"])
        console.print(f"Compare them: fedse compare {done}", soft_wrap=True, markup=False)


def run_cells(
    console: Console, made: Sequence[Cell], processes: int, max_minutes: float | None, dry_run: bool = False
) -> bool:
    """Work off the cells and print the table; whether all are done. Leaves with code 1 after a failure."""
    from fedse.federation.refusals import refusals_of
    from fedse.runs.reading import RunView
    from fedse.sweeps.processes import Interrupted, State, work_off

    if dry_run:
        console.print(_table(made, {}))
        return False
    done = sum(cell.is_complete() for cell in made)
    console.print(f"{len(made)} runs, {done} of them done already.")
    _warn_of_threads(console, made, processes)

    def tell(cell: Cell, result: Result) -> None:
        why = f": {result.why}" if result.why else ""
        console.print(
            f"{cell.name}: {result.state} after {duration(result.seconds)}{why}", soft_wrap=True, markup=False
        )
        if result.state is State.DONE:
            warn(console, refusals_of(RunView.existing(cell.folder)))

    try:
        results = work_off(made, processes, max_minutes, tell)
    except Interrupted as interrupted:
        console.print(_table(made, interrupted.results))
        console.print("Interrupted. Nothing complete is lost; the same command resumes the sweep.")
        raise typer.Exit(130) from None
    console.print(_table(made, results))
    if any(result.state is State.FAILED for result in results.values()):
        console.print(
            f"What failed runs printed is in {made[0].folder.parent / '.sweep'}.", soft_wrap=True, markup=False
        )
        raise typer.Exit(1)
    complete = all(result.state is State.DONE for result in results.values())
    if not complete:
        console.print("Stopped, as the time is over. The same command resumes the sweep.")
    return complete


def _warn_of_threads(console: Console, made: Sequence[Cell], processes: int) -> None:
    threads = max((cell.experiment.model.options.get("threads") or 1 for cell in made), default=1)
    cores = os.cpu_count() or 1
    if threads * processes > cores:
        console.print(
            f"{processes} runs at a time with model.threads = {threads} want more than the {cores} cores here and will wait "
            f"for each other: --set model.threads={max(1, cores // processes)} (it may change the last bits of results).",
            soft_wrap=True,
            markup=False,
        )


def _table(made: Sequence[Cell], results: Mapping[str, Result]) -> Table:
    table = Table(title_justify="left", caption_justify="left")
    for column, side in (
        ("run", "left"),
        ("state", "left"),
        ("rounds", "right"),
        ("macro %", "right"),
        ("why", "left"),
    ):
        table.add_column(column, justify="right" if side == "right" else "left")
    for cell in made:
        complete = cell.is_complete()
        rounds = cell.rounds_done()
        result = results.get(cell.name)
        begun = "begun" if rounds is not None else "waiting"
        state = str(result.state) if result else "done" if complete else begun
        colour = {"done": "green", "failed": "red"}.get(state, "yellow")
        table.add_row(
            Text(cell.name),
            Text(begun if state == "waiting" else state, style=colour),
            f"{rounds or 0}/{cell.experiment.rounds_to_play}",
            percent(_macro(cell)) if complete else "-",
            Text(result.why if result else ""),
        )
    return table


def _macro(cell: Cell) -> float | None:
    from fedse.runs.reading import RunView

    split = "test" if cell.experiment.evaluation.test_tasks != 0 else "validation"
    found = RunView.existing(cell.folder).evaluation(split, cell.experiment.rounds_to_play) or {}
    macro: float | None = found.get("macro")
    return macro
