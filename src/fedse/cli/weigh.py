"""`fedse weigh OWN SHARED -o FOLDER`: how much of its own and how much of the shared adapter serves each site best."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fedse.cli.console import make_console
from fedse.cli.new_places import check_new
from fedse.cli.numbers import numbers
from fedse.cli.tables import percent

if TYPE_CHECKING:
    from fedse.merging.weighing import Weighed

KINDS = ("own", "shared", "weighed")
Tested = Mapping[str, Mapping[str, Any]]
"""What each kind of adapter reached on the test tasks of a client."""


def weigh(
    own: Annotated[Path, typer.Argument(help="A finished run with `sharing: none`; its clients play.")],
    shared: Annotated[Path, typer.Argument(help="A finished run that shares an adapter, or the folder of an adapter.")],
    target: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write: a new folder, with one for each client.")
    ],
    weights: Annotated[str, typer.Option(help="Weights to try for each of the two; default: 0,0.25,0.5,0.75,1.")] = "",
    rank: Annotated[
        int | None, typer.Option(min=1, help="Most ranks of a result; what does not fit is cut off by SVD.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Validation tasks of each world; default: as in the first run.")
    ] = None,
    test: Annotated[
        bool,
        typer.Option("--test", help="Finally, play the own, the shared and the weighed adapter on the test tasks."),
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all numbers here.")
    ] = None,
) -> None:
    """Find two weights for each client on its validation tasks: for its own adapter and for the shared one.

    Nothing is learned. The best of many weights looks better on the tasks that chose it than it is: read --test.
    """
    from fedse.adapters.files import write_adapter
    from fedse.errors import BadInput
    from fedse.experiments.options import experiment_of
    from fedse.experiments.running import open_run
    from fedse.merging.measuring import Measuring
    from fedse.merging.merge import check_rank
    from fedse.merging.sources import gather
    from fedse.merging.weighing import grid, parted
    from fedse.merging.weighing import weigh as weighed_at
    from fedse.storage import atomic

    check_new(target, json_file)
    pairs = grid(_weights(weights))
    gathered = gather([own, shared])
    owned, other = parted(gathered)
    check_rank(rank, gathered.initial)
    if gathered.run.path.resolve() != own.resolve():
        raise BadInput(f"{own} is no run: name the run whose clients have adapters of their own first.")
    experiment = experiment_of(gathered.run.path)
    if test and experiment.evaluation.test_tasks == 0:
        raise BadInput(f"the experiment of {own} asks for no test (evaluation.test_tasks: 0): leave --test out.")
    console = make_console()
    found: dict[str, list[Weighed]] = {}
    best: dict[str, Weighed] = {}
    tested: dict[str, Tested] = {}
    with open_run(gathered.run.path) as federation, atomic.new_folder(target) as made:
        measuring = Measuring(federation.engine, federation.clients, gathered.run.last_round() or 0, tasks)
        for source in owned:
            console.print(f"{source.client}: {len(pairs)} pairs of weights", highlight=False)
            found[source.client], best[source.client], adapter = weighed_at(source, other, pairs, measuring, rank)
            (made / source.client).mkdir()
            write_adapter(adapter, made / source.client)
            if test:
                three = zip(KINDS, (source.adapter, other.adapter, adapter), strict=True)
                tested[source.client] = {kind: measuring.at(source.client, one, "test") for kind, one in three}
    console.print(_table(found, best, tested))
    console.print(f"Wrote {target}: an adapter for each of {', '.join(best)}", soft_wrap=True)
    if json_file is not None:
        content = {
            "own": str(own),
            "shared": str(shared),
            "clients": {
                client: {
                    "grid": [_flat(row) for row in rows],
                    "best": _flat(best[client]),
                    "test": tested.get(client),
                }
                for client, rows in found.items()
            },
        }
        atomic.write_text(json_file, json.dumps(content, indent=2) + "\n")


def _weights(text: str) -> list[float]:
    from fedse.merging.weighing import WEIGHTS

    wanted = "numbers from 0 on with commas between them, such as 0,0.5,1"
    return numbers("--weights", text, WEIGHTS, lambda found: min(found) >= 0 and any(found), wanted)


def _table(found: Mapping[str, Sequence[Weighed]], best: Mapping[str, Weighed], tested: Mapping[str, Tested]) -> Table:
    from fedse.merging.weighing import OWN, SHARED

    table = Table(
        title="Success (%) on validation tasks, own and shared adapters weighed for each client",
        caption="greedy, frozen; the validation chose the weights and flatters them"
        + ("; test: own / shared / weighed" if tested else ""),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("client")
    for column in (*KINDS, "weight of own", "of shared", "ranks", *(["test"] if tested else [])):
        table.add_column(column, justify="right")
    for client, rows in found.items():
        alone = [next(row for row in rows if row.weights == which) for which in (OWN, SHARED)]
        chosen = best[client]
        table.add_row(
            client,
            *(percent(row.measured["macro"]) for row in (*alone, chosen)),
            *(f"{weight:g}" for weight in chosen.weights),
            str(chosen.ranks),
            *([" / ".join(percent(tested[client][kind]["macro"]) for kind in KINDS)] if tested else []),
        )
    return table


def _flat(row: Weighed) -> dict[str, Any]:
    return {**row.weights._asdict(), "ranks": row.ranks, "lost": row.lost, **row.measured}
