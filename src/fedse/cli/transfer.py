"""`fedse transfer RUN`: every client's adapter in every world, and worlds that nobody learned from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedse.cli.compare import p_value
from fedse.cli.console import make_console, say
from fedse.cli.tables import interval, percent

if TYPE_CHECKING:
    from fedse.experiments.assembling import Federation
    from fedse.experiments.options import Experiment
    from fedse.sweeps.grid import Cell
    from fedse.types import Split, Trajectory


def transfer(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    split: Annotated[str, typer.Option(help="validation or test; default: test where the experiment has one.")] = "",
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Also train without each client in turn and measure in its worlds.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time with --leave-one-out.")] = 1,
    max_minutes: Annotated[float | None, typer.Option(min=0, help="Time for the runs of --leave-one-out.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON.")] = False,
) -> None:
    """Measure each client's own adapter in the worlds of the others. Stored results are reused."""
    from fedse.errors import BadInput
    from fedse.evaluation.synergy import synergy_gaps
    from fedse.evaluation.transfer_plot import draw_matrix
    from fedse.experiments.options import experiment_of
    from fedse.experiments.running import open_run
    from fedse.experiments.transfer import BEGINNING, SHARED
    from fedse.experiments.transfer import transfer as measure
    from fedse.plugins import capability
    from fedse.runs.reading import RunView

    experiment = experiment_of(RunView.existing(run).path)
    if not experiment.in_process:
        raise BadInput(
            f"the clients of {run} work in other processes (`engine: {experiment.engine.name}`): transfer needs them in "
            "one, `engine: local`."
        )
    if capability(experiment.mix, "own_mixture"):
        raise BadInput(
            f"with `mix: {experiment.mix.name}` each client of {run} plays with a mixture that no other client has, so no "
            "adapter can be played everywhere: transfer needs `mix: broadcast` or `mix: personal`."
        )
    if capability(experiment.learner, "learns_from_failures") and experiment.sharing == "all":
        raise BadInput(
            f"transfer fits each client's adapter of {run} again from its buffer, and `learner: {experiment.learner.name}` "
            "also learned from failures, which no buffer keeps: transfer needs `learner: imitation` or `sharing: none`."
        )
    with open_run(run) as federation:
        chosen = _split(split, experiment)
        if not federation.run.last_round():
            raise BadInput(f"{run} has no round, so no client has learned anything: transfer needs a run with rounds.")
        if leave_one_out and experiment.sharing == "none":
            raise BadInput(f"the clients of {run} share nothing, so nothing could reach a client that is left out.")
        console = make_console()
        tell = (
            (lambda _: None) if as_json else (lambda name: console.print(f"playing the adapter of {name} everywhere"))
        )
        found = measure(federation.server, federation.clients, chosen, tell)
        rows, columns, cells = _matrix(found)
        gaps = synergy_gaps(cells, SHARED, BEGINNING)
        if as_json:
            say(json.dumps({**found, "synergy_gap": gaps}, indent=2))
        else:
            console.print(_matrix_table(found, rows, columns, cells, gaps))
        shares = [[cells[name, column]["success"] for column in columns] for name in rows]
        title = f"{federation.run.path.name}: {chosen} success after round {found['round']}"
        drawn = draw_matrix(rows, columns, shares, title, federation.run.path / "transfer.png")
        if drawn is not None and not as_json:
            console.print(f"Picture: {drawn}", soft_wrap=True)
        if leave_one_out:
            _leave_one_out(console, federation, chosen, processes, max_minutes)


def _split(split: str, experiment: Experiment) -> Split:
    from fedse.errors import BadInput
    from fedse.plugins import nearest_or_all

    chosen = split or ("validation" if experiment.evaluation.test_tasks == 0 else "test")
    if chosen == "test":
        if experiment.evaluation.test_tasks == 0:
            raise BadInput("the experiment asks for no test (evaluation.test_tasks: 0): use --split validation.")
        return "test"
    if chosen == "validation":
        return "validation"
    raise BadInput(f"--split {split}: {nearest_or_all(split, ['validation', 'test'], 'Known:')}.")


def _matrix(found: Mapping[str, Any]) -> tuple[list[str], list[str], dict[tuple[str, str], Mapping[str, Any]]]:
    from fedse.evaluation.measured import world_name

    cells = {
        (name, world_name(row["client"], row["world"])): row
        for name, line in found["rows"].items()
        for row in line["worlds"]
    }
    return list(found["rows"]), list(dict.fromkeys(column for _, column in cells)), cells


def _matrix_table(
    found: Mapping[str, Any],
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], Mapping[str, Any]],
    gaps: Mapping[str, float | None],
) -> Table:
    told = "; synergy gap: how far the shared adapter is below the best single one, as a share of it" if gaps else ""
    table = Table(
        title=f"Success (%) on {found['split']} tasks, adapters after round {found['round']}",
        caption="a row for each client's own adapter, a column for each world; 95 % Wilson intervals; *: its own world"
        + told,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("adapter of")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("macro", justify="right")
    for name in rows:
        line = [cells[name, column] for column in columns]
        texts = [
            f"{percent(cell['success'])} ({interval(cell['interval'])}){' *' if cell['client'] == name else '  '}"
            for cell in line
        ]
        table.add_row(name, *texts, percent(found["rows"][name]["macro"]))
    if gaps:
        shown = ["-" if gap is None else f"{100 * gap:+.0f} %  " for gap in (gaps[column] for column in columns)]
        table.add_row("synergy gap", *shown, "")
    return table


def without(experiment: Experiment, folder: Path) -> list[Cell]:
    """For each client that learns, the same experiment in which it only measures."""
    from fedse.errors import BadInput
    from fedse.experiments.options import Experiment
    from fedse.experiments.resuming import conflict
    from fedse.sweeps.grid import Cell

    learning = [name for name, options in experiment.clients.items() if options.learns]
    if len(learning) < 2:
        raise BadInput("--leave-one-out needs at least two clients that learn.")
    made = []
    for name in sorted(learning):
        content = experiment.model_dump(mode="json")
        content["clients"][name]["learns"] = False
        content["name"] = f"without_{name}"[:100]
        changed = Experiment.model_validate(content)
        if reason := conflict(folder / changed.name, changed):
            raise BadInput(reason)
        made.append(Cell(changed.name, changed, folder / changed.name))
    return made


def _leave_one_out(
    console: Console, federation: Federation, split: Split, processes: int, max_minutes: float | None
) -> None:
    from fedse.cli.sweep import run_cells

    run = federation.run.path
    made = without(federation.experiment, run / "leave_one_out")
    console.print(f"Training without each client in turn, in {made[0].folder.parent}:", soft_wrap=True)
    if run_cells(console, made, processes, max_minutes):
        console.print(_left_out_table(federation, made, split))


def _left_out_table(federation: Federation, made: Sequence[Cell], split: Split) -> Table:
    """Success in each world of the first adapter, of one that learned elsewhere, and of one that learned here too."""
    from fedse.evaluation.paired import holm, sign_flip
    from fedse.experience.journal import Journal
    from fedse.experiments.transfer import BEGINNING, SHARED, journal_of

    name_of_file = f"{split}-{federation.run.last_round() or 0:04d}"
    holders = {place.origin.client: client for client in federation.clients for place in client.site.places.values()}
    lines = []
    for cell in made:
        name = cell.name.removeprefix("without_")
        holder = holders[name]
        own = {label: place.origin.label for label, place in holder.site.places.items() if place.origin.client == name}
        first = _played(journal_of(holder, BEGINNING).read(name_of_file), own)
        shared = _played(journal_of(holder, SHARED).read(name_of_file), own)
        alone = Journal(cell.folder / "clients" / name / "episodes").read(name_of_file)
        elsewhere = _played(alone, {label: label for label in own.values()})
        common = sorted(first.keys() & elsewhere.keys() & shared.keys())
        lines.append((name, [[item[key] for key in common] for item in (first, elsewhere, shared)]))
    tests = [sign_flip([b - a for a, b in zip(values[0], values[1], strict=True)]) for _, values in lines]
    table = Table(
        title=f"Success (%) on {split} tasks of worlds that were left out of training",
        caption="p: exact McNemar test of `left out` against `beginning` on the same tasks, Holm-corrected",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("client")
    for column in ("beginning", "left out", "learned too", "change by the others", "p (Holm)", "tasks"):
        table.add_column(column, justify="right")
    for (name, values), p in zip(lines, holm(tests), strict=True):
        shares = [sum(item) / len(item) if item else None for item in values]
        gain = None if shares[0] is None or shares[1] is None else shares[1] - shares[0]
        verdict = "" if p < 0.05 else " not distinguishable"
        change = "-" if gain is None else f"{100 * gain:+.1f}{verdict}"
        table.add_row(name, *map(percent, shares), change, p_value(p), str(len(values[0])))
    return table


def _played(episodes: Iterable[Trajectory], labels: Mapping[str, str]) -> dict[tuple[str, str], int]:
    """Success of each task of the chosen worlds, under the labels these have in the experiment."""
    from fedse.types import Outcome

    return {
        (labels[item.world], item.task): int(item.outcome is Outcome.SUCCESS)
        for item in episodes
        if item.world in labels and item.outcome is not Outcome.ERROR
    }
