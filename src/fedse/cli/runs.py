"""`fedse runs`: list runs, pack one into a file, unpack it elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedse.cli.console import make_console, say

app = typer.Typer(help="List runs, or move one to another machine.", invoke_without_command=True)


@app.callback()
def runs(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """List the runs in a folder."""
    if context.invoked_subcommand is not None:
        return
    from fedse.experiments.running import stored_experiment
    from fedse.runs.folder import RunFolder

    table = Table()
    for column in ("run", "rounds", "clients", "model", "MB"):
        table.add_column(column, justify="left" if column in ("run", "model") else "right")
    for manifest in sorted(folder.glob("*/manifest.json")):
        run = RunFolder.existing(manifest.parent)
        experiment = stored_experiment(run)
        table.add_row(
            run.path.name,
            f"{run.last_round() or 0}/{experiment.rounds_to_play}",
            str(len(experiment.clients)),
            experiment.model.name,
            f"{run.size() / 1e6:.1f}",
        )
    console = make_console()
    console.print(table if table.row_count else f"No runs in {folder}.")
    for rounds in sorted(folder.glob("*/rounds")):
        manifest = rounds.parent / "manifest.json"
        if not manifest.exists():
            console.print(f"{manifest} is missing: the tables are without it. Restore it from a copy of the run.")


@app.command()
def pack(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    target: Annotated[Path | None, typer.Argument(help="File to write; default: NAME.fedse.tar.gz here.")] = None,
) -> None:
    """Make one portable file of a run. It holds the clients' trajectories too."""
    from fedse.runs import portable
    from fedse.runs.folder import RunFolder

    folder = RunFolder.existing(run)
    written = target or Path(f"{folder.path.resolve().name}.fedse.tar.gz")
    portable.pack(folder, written)
    say(f"Wrote {written} ({written.stat().st_size / 1e6:.1f} MB). It holds trajectories: treat it as private.")


@app.command()
def unpack(
    packed: Annotated[Path, typer.Argument(help="A file made by `fedse runs pack`.")],
    into: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
) -> None:
    """Lay a packed run out, ready to be resumed."""
    from fedse.runs import portable

    say(f"Unpacked to {portable.unpack(packed, into)}")
