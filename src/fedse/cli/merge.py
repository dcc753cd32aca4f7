"""`fedse merge RUN... -o ADAPTER`: make one adapter of finished ones, by several rules, and keep the best."""

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
from fedse.cli.tables import evaluation_table, percent

if TYPE_CHECKING:
    from fedse.merging.merge import Row

AT_HOME = "each at home"


def merge(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Finished runs, or folders of adapters. The clients of the first run play the results."),
    ],
    target: Annotated[Path, typer.Option("--output", "-o", help="Where to write the best adapter: a new folder.")],
    rule: Annotated[
        list[str] | None,
        typer.Option(help="An aggregator; may be repeated; default: those that merge.", show_default=False),
    ] = None,
    scales: Annotated[
        str, typer.Option(help="How far to go, for rules that have such an option; default: 0.3,0.5,1.0,1.5.")
    ] = "",
    rank: Annotated[
        int | None, typer.Option(min=1, help="Most ranks of a result; what does not fit is cut off by SVD.")
    ] = None,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Validation tasks of each world; default: as in the first run.")
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Finally, play the best one on the test tasks, once.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the table here.")] = None,
) -> None:
    """Merge finished adapters once. Try every rule and scale on validation tasks and write the best one.

    Of a run whose clients share nothing (local_se) each client's last adapter is merged, of any other the last shared one.
    """
    from fedse.adapters.files import write_adapter
    from fedse.adapters.first import further_ranks, rank_of
    from fedse.errors import BadInput
    from fedse.experiments.options import experiment_of
    from fedse.experiments.running import open_run
    from fedse.merging.candidates import RULES, candidates
    from fedse.merging.measuring import Measuring
    from fedse.merging.merge import check_rank, merge_all
    from fedse.merging.sources import gather
    from fedse.storage import atomic

    check_new(target, json_file)
    chosen = candidates(rule or RULES, _scales(scales))
    gathered = gather(runs)
    check_rank(rank, gathered.initial)
    experiment = experiment_of(gathered.run.path)
    if not experiment.in_process:
        raise BadInput(
            f"the clients of {gathered.run.path} work in other processes (`engine: {experiment.engine.name}`): name a run "
            "with `engine: local` first."
        )
    if test and experiment.evaluation.test_tasks == 0:
        raise BadInput(
            f"the experiment of {gathered.run.path} asks for no test (evaluation.test_tasks: 0): leave --test out."
        )
    console = make_console()
    with open_run(gathered.run.path) as federation:
        measuring = Measuring(federation.engine, federation.clients, gathered.run.last_round() or 0, tasks)
        console.print(f"Merging {len(gathered.sources)} adapters in {len(chosen)} ways", soft_wrap=True)
        at_home = measuring.at_home(gathered.sources)
        rows, best, adapter = merge_all(
            chosen,
            gathered,
            measuring,
            rank,
            lambda row: console.print(f"{_title(row)}: {percent(row.measured['macro'])}", highlight=False),
        )
        console.print(_table(rows, best, at_home))
        with atomic.new_folder(target) as made:
            write_adapter(adapter, made)
        console.print(f"Wrote {target}: {_title(best)}", soft_wrap=True)
        if further := further_ranks(adapter):
            own = rank_of(adapter)
            console.print(
                f"It has {own + further} ranks and the model's adapter {own}, so a run cannot begin with it "
                f"(`start_adapter`): --rank {own} makes one with which it can.",
                soft_wrap=True,
            )
        tested = measuring.everywhere(adapter, "test") if test else None
        if tested is not None:
            console.print(evaluation_table(tested, f"test, {_title(best)}"))
    if json_file is not None:
        content = _as_json([source.name for source in gathered.sources], rows, best, at_home, tested, adapter.digest())
        atomic.write_text(json_file, json.dumps(content, indent=2) + "\n")


def _scales(text: str) -> list[float]:
    from fedse.merging.candidates import SCALES

    wanted = "numbers above 0 with commas between them, such as 0.3,0.5,1.0"
    return numbers("--scales", text, SCALES, lambda found: min(found) > 0, wanted)


def _title(row: Row) -> str:
    return row.rule if row.scale is None else f"{row.rule} {row.scale:g}"


def _table(rows: Sequence[Row], best: Row, at_home: Mapping[str, Any] | None) -> Table:
    columns = list(_by_world(rows[0].measured))
    cut = any(row.lost for row in rows)
    count = max(entry["episodes"] for entry in rows[0].measured["worlds"])
    table = Table(
        title="Success (%) on validation tasks, merged adapters",
        caption=f"at most {count} tasks per world, greedy, frozen; *: the best by macro, the one that is written"
        + ("; lost: share (%) of the products' norm that --rank cut off" if cut else ""),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("rule")
    for column in ("scale", *columns, "macro", "ranks", *(["lost"] if cut else [])):
        table.add_column(column, justify="right")
    if at_home is not None:
        own = _by_world(at_home)
        cells = [percent(own.get(column)) for column in columns]
        table.add_row(AT_HOME, "-", *cells, percent(at_home["macro"]), "-", *(["-"] if cut else []), end_section=True)
    for row in rows:
        shares = _by_world(row.measured)
        scale = "-" if row.scale is None else f"{row.scale:g}"
        macro = percent(row.measured["macro"]) + (" *" if row is best else "")
        cells = [percent(shares[column]) for column in columns]
        table.add_row(row.rule, scale, *cells, macro, str(row.ranks), *([percent(row.lost)] if cut else []))
    return table


def _by_world(measured: Mapping[str, Any]) -> dict[str, float | None]:
    """Success in each world; the mean where several adapters were played in it."""
    from fedse.evaluation.measured import world_name

    found: dict[str, list[float]] = {}
    for entry in measured["worlds"]:
        shares = found.setdefault(world_name(entry["client"], entry["world"]), [])
        shares += [] if entry["success"] is None else [entry["success"]]
    return {name: sum(shares) / len(shares) if shares else None for name, shares in found.items()}


def _as_json(
    sources: Sequence[str],
    rows: Sequence[Row],
    best: Row,
    at_home: Mapping[str, Any] | None,
    tested: Mapping[str, Any] | None,
    digest: str,
) -> dict[str, Any]:
    def flat(row: Row) -> dict[str, Any]:
        return {"rule": row.rule, "scale": row.scale, "ranks": row.ranks, "lost": row.lost, **row.measured}

    return {
        "sources": sources,
        "split": "validation",
        "at_home": at_home,
        "rows": [flat(row) for row in rows],
        "best": {"rule": best.rule, "scale": best.scale, "adapter": digest},
        "test": tested,
    }
