"""`fedse generations RUN...`: the adapters after each round, by percentiles over kinds of tasks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedse.cli.console import make_console, say


def generations(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs with the same worlds; the best of all is 100 %.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Print whether each round's adapter is better than the one before it across the board, or only on average.

    Validation success of each category of tasks counts as a share of the best that any of these adapters had in it.
    """
    from fedse.evaluation.generations import PERCENTILES, measured
    from fedse.evaluation.generations import generations as told_of
    from fedse.runs.reading import RunView

    found = told_of({str(run): measured(RunView.existing(run)) for run in runs})
    if as_json:
        say(json.dumps([asdict(item) for item in found], indent=2))
        return
    console = make_console()
    for run in dict.fromkeys(item.run for item in found):
        table = Table(title=f"{run}: percentiles over kinds of tasks, % of the best known", title_justify="left")
        table.add_column("after round", justify="right")
        table.add_column("participation", justify="right")
        for percentile in PERCENTILES:
            table.add_column(f"{percentile}th", justify="right")
        table.add_column("than before")
        for item in found:
            if item.run == run:
                numbers = [item.participation, *item.percentiles]
                table.add_row(str(item.round), *(f"{100 * number:.0f}" for number in numbers), item.verdict)
        console.print(table)
