"""`fedse reproduce table1|ablations|rank`: the paper's experiments on a model of your choice, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fedse.cli import paper_numbers as paper
from fedse.cli.console import make_console
from fedse.cli.tables import interval, percent

if TYPE_CHECKING:
    from fedse.evaluation.comparison import Comparison, Group
    from fedse.experiments.options import Experiment
    from fedse.sweeps.grid import Cell


class What(StrEnum):
    TABLE1 = "table1"
    ABLATIONS = "ablations"
    RANK = "rank"


GRIDS: dict[What, dict[str, Any]] = {
    What.TABLE1: {
        "methods": ["fed_se", "fedit", "local", "centralized", "pretrained", "local_se", "centralized_se"],
    },
    What.ABLATIONS: {
        "variants": {
            "fed_se": {},
            "no_history": {"buffer.history": False},
            "success_weighted": {"aggregator": "success_weighted"},
            "no_filter": {"filter": "none"},
        }
    },
    What.RANK: {
        "variants": {
            f"rank_{rank}": {"model.lora.rank": rank, "model.lora.alpha": 2 * rank} for rank in (8, 2, 4, 16, 32)
        }
    },
}
"""The first row is the one the others are tested against."""


def reproduce(
    what: Annotated[What, typer.Argument(help="Which of the paper's experiments.")],
    model: Annotated[str, typer.Option(help="The base model, as in an experiment file.")] = "",
    base: Annotated[
        Path | None, typer.Option(help="An experiment of your own in place of the paper's setting.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. --set rounds=5.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each row: 0, 1, ...")] = 1,
    beside: Annotated[str, typer.Option(help="The paper's model to print beside ours.")] = "Qwen2.5-7B",
    runs: Annotated[Path, typer.Option(help="Folder that holds the runs.")] = Path("runs"),
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    max_minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop when this time is over; rerun the command to resume.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run and stop.")] = False,
) -> None:
    """Run (or resume) an experiment of the paper and print its results next to the paper's.

    What is complete is printed even when the time is over or a run failed.
    """
    from fedse.cli.compare import print_details
    from fedse.cli.sweep import run_cells
    from fedse.errors import BadInput
    from fedse.plugins import nearest_or_all

    if beside not in paper.TABLE1:
        raise BadInput(f"--beside {beside}: {nearest_or_all(beside, paper.TABLE1, 'The paper has')}.")
    if not model and base is None:
        raise BadInput(
            "--model is missing: name a base model, such as --model smollm2, or give an experiment with --base."
        )
    made = grid(what, model, base, settings or [], seeds, runs)
    console = make_console()
    try:
        run_cells(console, made, processes, max_minutes, dry_run)
    finally:
        done = [cell for cell in made if cell.is_complete()]
        if done and not dry_run:
            split, found = _compared(what, done)
            console.print(_beside_table(what, found, split, beside, done, len(made)))
            console.print(_differences_table(what, found, beside))
            print_details(console, found)
            console.print(_protocol_table(what, made[0].experiment, found, beside))


def grid(what: What, model: str, base: Path | None, settings: Sequence[str], seeds: int, runs: Path) -> list[Cell]:
    """The runs behind one of the paper's experiments."""
    import json

    from fedse.experiments.file import override
    from fedse.storage.strict_yaml import read_yaml
    from fedse.sweeps.grid import Sweep, cells

    with as_file(files("fedse.cli") / "reproduce.yaml") as packaged:
        content, places = read_yaml(base or packaged)
    override(content, [*([f"model={json.dumps(model)}"] if model else []), *settings], places)
    named = content.get("model", "")
    name = named if isinstance(named, str) else str(named.get("path") or named.get("name", ""))
    title = f"{what}-{''.join(letter if letter.isalnum() else '_' for letter in Path(name).name)}".strip("-_")
    sweep = Sweep(name=title, experiment={}, seeds=list(range(seeds)), **GRIDS[what])
    return cells(sweep, content, places, runs)


def row_of(name: str) -> str:
    """The row of a run: its name without the seed."""
    return name.rsplit("-s", 1)[0]


def _compared(what: What, done: Sequence[Cell]) -> tuple[str, Comparison]:
    from fedse.evaluation.comparison import compare
    from fedse.experiments.measuring import read_runs

    split, measured = read_runs([cell.folder for cell in done], "")
    first = next(iter(GRIDS[what].get("methods") or GRIDS[what]["variants"]))
    reference = next((run.name for run in measured if row_of(run.name) == first), "")
    return split, compare(measured, reference)


def _worlds(group: Group) -> dict[str, str]:
    """The paper's name of each world of ours that it has."""
    run = group.runs[0]
    kinds = {name: run.settings[f"worlds.{name}"]["name"] for name in group.successes}
    return {name: kind for name, kind in kinds.items() if kind in paper.WORLDS}


def _beside_table(what: What, found: Comparison, split: str, beside: str, done: Sequence[Cell], asked: int) -> Table:
    partial = "" if len(done) == asked else f"; PARTIAL: {len(done)} of {asked} runs are complete"
    of_paper = beside if what is What.TABLE1 else "Llama2-7B"
    table = Table(
        title=f"Success (%) on {split} tasks: ours (95 %), below it the paper's ({of_paper}){partial}",
        caption="-: the paper has no such number; its average is the micro-average; macro of the paper: mean of its worlds",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    table.add_column("seeds", justify="right")
    worlds = _worlds(found.groups[0])
    for name in found.groups[0].successes:
        table.add_column(name, justify="right")
    for column in ("macro", "micro", *(["MiB"] if what is What.RANK else [])):
        table.add_column(column, justify="right")
    for group in found.groups:
        row = row_of(group.runs[0].name)
        theirs = paper.TABLE1[beside].get(row) if what is What.TABLE1 else None
        cells = []
        for name in group.successes:
            number = theirs[paper.WORLDS.index(worlds[name])] if theirs and name in worlds else None
            cells.append(_cell(*group.world(name), number))
        macro = sum(theirs[:-1]) / len(paper.WORLDS) if theirs else None
        size = [_mebibytes(next(cell for cell in done if row_of(cell.name) == row))] if what is What.RANK else []
        table.add_row(
            row,
            str(len(group.runs)),
            *cells,
            _cell(*group.macro(), macro),
            _cell(*group.micro(), paper.micro(what, row, beside)),
            *size,
        )
    return table


def _cell(share: float, bounds: tuple[float, float], theirs: float | None) -> str:
    return f"{percent(share)} ({interval(bounds)})\n{'-' if theirs is None else f'{theirs:.1f}'}"


def _mebibytes(cell: Cell) -> str:
    """One adapter in float32, one direction."""
    from fedse.adapters.files import read_adapter
    from fedse.runs.reading import RunView

    ours = read_adapter(RunView(cell.folder).round_folder(0) / "adapter").size * 4 / 2**20
    row = row_of(cell.name)
    return f"{ours:.2f}\n{paper.RANKS[row][1] if row in paper.RANKS else '-'}"


def _differences_table(what: What, found: Comparison, beside: str) -> Table:
    table = Table(title="Does the paper's difference show here? (micro, points)", title_justify="left")
    table.add_column("")
    table.add_column("against")
    for column in ("ours", "95 %", "paper"):
        table.add_column(column, justify="right")
    table.add_column("verdict on ours")
    rows = {group.label: row_of(group.runs[0].name) for group in found.groups}
    for pair in found.pairs:
        ours, theirs = rows[pair.ours], rows[pair.theirs]
        numbers = [paper.micro(what, row, beside) for row in (ours, theirs)]
        claimed = None if None in numbers else float(numbers[0] or 0) - float(numbers[1] or 0)
        low, high = pair.found.micro_interval
        better = pair.verdict.replace(pair.ours, ours).replace(pair.theirs, theirs)
        table.add_row(
            ours,
            theirs,
            f"{100 * pair.found.micro:+.1f}",
            f"{100 * low:+.1f} to {100 * high:+.1f}",
            "-" if claimed is None else f"{claimed:+.1f}",
            better,
        )
    return table


def _protocol_table(what: What, experiment: Experiment, found: Comparison, beside: str) -> Table:
    table = Table(title="What differs in protocol", title_justify="left")
    for column in ("", "paper", "here", ""):
        table.add_column(column)
    for item, theirs, ours in protocol(what, experiment, found, beside):
        table.add_row(
            item, theirs, ours, "not known" if "not stated" in theirs else "" if theirs == ours else "differs"
        )
    return table


def protocol(what: What, experiment: Experiment, found: Comparison, beside: str) -> list[tuple[str, str, str]]:
    """What was done there and here, point by point."""
    group = found.groups[0]
    worlds = _worlds(group)
    parts = {name: group.runs[0].settings[f"worlds.{name}"] for name in group.successes}
    model, learner = experiment.model, experiment.learner.options
    lora = model.options.get("lora") or {}
    start = experiment.start.options.get("tasks")
    modes = sorted({f"{part.get('mode', '-')} mode, {part.get('rules', '-')} rules" for part in parts.values()})

    def listed(numbers: dict[str, Any]) -> str:
        return ", ".join(f"{name} {number}" for name, number in numbers.items())

    return [
        ("model", beside if what is What.TABLE1 else "Llama2-7B", str(model.options.get("path") or model.name)),
        ("worlds", "AgentGym's five", f"{', '.join(worlds.values()) or 'none of them'}; {'; '.join(modes)}"),
        ("test tasks", listed(paper.TEST_TASKS), listed({name: group.successes[name].shape[1] for name in parts})),
        (
            "demonstrations",
            f"AgentTraj-L: {listed(paper.DEMONSTRATIONS)}",
            f"{experiment.start.name}{f': up to {start} of each world by its expert' if start else ''}",
        ),
        ("rounds", "20", str(experiment.rounds)),
        (
            "explored in a round",
            "not stated",
            f"{experiment.exploration.tasks} tasks x {experiment.exploration.attempts} of each world",
        ),
        ("temperature", "1", f"{experiment.exploration.temperature:g}"),
        ("learning rate, epochs", "5e-05, 2", f"{learner.get('learning_rate', '-')}, {learner.get('epochs', '-')}"),
        (
            "LoRA",
            "r 2 to 16, alpha not stated" if what is What.RANK else "r 8, alpha 16, all-linear",
            "as named, alpha 2r"
            if what is What.RANK
            else f"r {lora.get('rank', '-')}, alpha {lora.get('alpha', '-')}, {lora.get('targets', '-')}",
        ),
        ("weights of FedIT", "not stated", "by trajectories learned from"),
        ("evaluation", "decoding not stated", "greedy"),
        ("seeds", "1", str(len(group.runs))),
    ]
