"""`fedse eval RUN`: measure the adapter of a round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedse.cli.console import make_console
from fedse.cli.rounds import AfterRound, chosen_round
from fedse.cli.splits import checked_split


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    wanted: AfterRound = "",
    world: Annotated[str, typer.Option(help="Only this world.")] = "",
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change what changes no result, e.g. --set policy.url=..."),
    ] = None,
) -> None:
    """Play held-out tasks with a stored adapter, greedily and without learning, and store the result."""
    from fedse.cli.progress import Progress
    from fedse.cli.tables import evaluation_table
    from fedse.errors import BadInput
    from fedse.experiments.running import open_run
    from fedse.plugins import nearest_or_all
    from fedse.runs.reading import RunView

    chosen = checked_split(split)
    folder = RunView.existing(run)
    number = chosen_round(folder, wanted)
    folder.digest_of(number)
    console = make_console()
    console.print(
        f"{run}: preparing the {split} tasks for the adapter after round {number}", soft_wrap=True, markup=False
    )
    with Progress(console, number) as progress:
        federation = open_run(run, [progress], settings or [])
        worlds = sorted({label for client in federation.clients for label in client.site.places})
        if world and world not in worlds:
            raise BadInput(f"--world {world}: {nearest_or_all(world, worlds, 'This run has:')}.")
        if chosen == "test" and federation.experiment.evaluation.test_tasks == 0:
            raise BadInput(
                f"the experiment of {run} asks for no test (evaluation.test_tasks: 0): use --split validation."
            )
        try:
            result = federation.server.evaluate(number, chosen, world)
        finally:
            federation.close()
    console.print(evaluation_table(result, f"{split}, adapter after round {number}"))
    console.print(f"Stored: {federation.run.evaluation_path(chosen, number, world)}", soft_wrap=True)
