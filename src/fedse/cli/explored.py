"""`fedse explored RUN...`: which kinds of tasks were tried in each round, and how often with success."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedse.cli.console import NO_PICTURE, make_console, say

if TYPE_CHECKING:
    from fedse.evaluation.explored_plot import Tries


def explored(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, with the buffers of their clients.")],
    client: Annotated[str, typer.Option(help="Only this client.")] = "",
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw it (PNG), a panel for each run and world.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Print how many attempts each category of tasks got in each round, and what share of them succeeded.

    Attempts from a task's beginning are counted, without errors of worlds.
    """
    from fedse.evaluation.explored_plot import draw_explored

    names = [run.name for run in runs]
    found = [
        row
        for run, name in zip(runs, names, strict=True)
        for row in _read(run, name if names.count(name) == 1 else str(run), client)
    ]
    if picture is not None and draw_explored(found, picture) is None:
        say(NO_PICTURE, err=True)
    if as_json:
        say(json.dumps([row._asdict() for row in found], indent=2))
        return
    if not found:
        say(f"Nothing was explored in {', '.join(map(str, runs))}, or what was is on the machines of its sites.")
    console = make_console()
    for place in dict.fromkeys(row.place for row in found):
        title = ", ".join(place[len(runs) == 1 :])
        console.print(_table(f"{title}: tries (% solved)", [row for row in found if row.place == place]))


def _read(run: Path, name: str, client: str) -> list[Tries]:
    from fedse.errors import BadInput
    from fedse.evaluation.explored_plot import Tries
    from fedse.experience.buffer_file import explored as read
    from fedse.plugins import nearest_or_all
    from fedse.runs.reading import RunView

    view = RunView.existing(run)
    folders = {path.parent.name: path for path in sorted((view.path / "clients").glob("*/buffer.sqlite"))}
    if client and client not in folders:
        raise BadInput(f"--client {client}: {nearest_or_all(client, folders, f'Clients with a buffer in {run}:')}.")
    return [
        Tries(name, holder, *row) for holder, path in folders.items() if client in ("", holder) for row in read(path)
    ]


def _table(title: str, rows: Sequence[Tries]) -> Table:
    from fedse.evaluation.explored_plot import by_ease

    cells = {(row.round, row.category): row for row in rows}
    order = by_ease(rows)
    table = Table(title=title, title_justify="left")
    table.add_column("round", justify="right")
    for category in order:
        table.add_column(category or "all", justify="right")
    for number in sorted({row.round for row in rows}):
        own = [cells.get((number, category)) for category in order]
        table.add_row(
            str(number), *(f"{row.tries} ({100 * row.successes / row.tries:.0f})" if row else "-" for row in own)
        )
    return table
