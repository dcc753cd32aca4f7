"""`fedse explored RUN`: which kinds of tasks were tried in each round, and how often with success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedse.cli.console import make_console, say


def explored(
    run: Annotated[Path, typer.Argument(help="A run's folder, with the buffers of its clients.")],
    client: Annotated[str, typer.Option(help="Only this client.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Print how many attempts each category of tasks got in each round, and what share of them succeeded.

    Attempts from a task's beginning are counted, without errors of worlds.
    """
    from fedse.errors import BadInput
    from fedse.experience.buffer_file import explored as read
    from fedse.plugins import nearest
    from fedse.runs.reading import RunView

    view = RunView.existing(run)
    folders = {path.parent.name: path for path in sorted((view.path / "clients").glob("*/buffer.sqlite"))}
    if client and client not in folders:
        raise BadInput(
            f"--client {client}: {nearest(client, folders)}Clients with a buffer here: {', '.join(folders)}."
        )
    found: list[dict[str, Any]] = [
        {"client": name, "round": round, "world": world, "category": category, "tries": tries, "successes": successes}
        for name, path in folders.items()
        if client in ("", name)
        for round, world, category, tries, successes in read(path)
    ]
    if as_json:
        say(json.dumps(found, indent=2))
        return
    if not found:
        say(f"Nothing was explored in {run}, or what was is on the machines of its sites.")
    console = make_console()
    for name, world in dict.fromkeys((row["client"], row["world"]) for row in found):
        own = [row for row in found if (row["client"], row["world"]) == (name, world)]
        cells = {(row["round"], row["category"]): (row["tries"], row["successes"]) for row in own}
        console.print(_table(f"{name}, {world}: tries (% solved)", cells))


def _table(title: str, cells: dict[tuple[int, str], tuple[int, int]]) -> Table:
    # By how often they are solved: what is easy comes first.
    solved: dict[str, list[tuple[int, int]]] = {}
    for (_, category), counts in cells.items():
        solved.setdefault(category, []).append(counts)
    order = sorted(solved, key=lambda name: -sum(hits for _, hits in solved[name]) / sum(n for n, _ in solved[name]))
    table = Table(title=title, title_justify="left")
    table.add_column("round", justify="right")
    for category in order:
        table.add_column(category or "all", justify="right")
    for number in sorted({number for number, _ in cells}):
        row = [cells.get((number, category)) for category in order]
        table.add_row(str(number), *(f"{item[0]} ({100 * item[1] / item[0]:.0f})" if item else "-" for item in row))
    return table
