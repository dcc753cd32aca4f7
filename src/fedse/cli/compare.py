"""`fedse compare RUN...`: which method is better, how sure that is, and what each cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedse.cli.console import NO_PICTURE, make_console, say
from fedse.cli.progress import counted
from fedse.cli.tables import interval, markdown, percent

if TYPE_CHECKING:
    from fedse.evaluation.comparison import Comparison, Group, Pair
    from fedse.evaluation.paired import Difference

_WIDEST_WORD = 30
"""Characters; a longer one is broken."""


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs. Runs that differ only in seed and rounding count as one method."),
    ],
    split: Annotated[
        str, typer.Option(help="Split to compare: validation or test; default: test if all runs have it.")
    ] = "",
    against: Annotated[str, typer.Option(help="Method (or one of its runs) that all others are tested against.")] = "",
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Test every method against every other.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the curves into this file (PNG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
) -> None:
    """Compare finished runs on the same tasks: success with intervals, paired tests and costs."""
    from fedse.errors import BadInput
    from fedse.evaluation.compare_plot import draw_comparison
    from fedse.evaluation.comparison import compare as measure
    from fedse.evaluation.comparison import to_json
    from fedse.experiments.measuring import read_runs

    if as_json and as_markdown:
        raise BadInput("--json and --markdown: give one of the two.")
    chosen, measured = read_runs(runs, split)
    found = measure(measured, against, all_pairs)
    drawn = draw_comparison(found, picture) if picture else None
    if picture and drawn is None:
        say(NO_PICTURE, err=True)
    if as_json:
        say(json.dumps({"split": chosen, **to_json(found)}, indent=2))
        return
    if as_markdown:
        tables = [success_table(found, chosen), *_detail_tables(found)]
        say("\n\n".join([*map(markdown, tables), *found.notes]))
        return
    console = make_console()
    print_comparison(console, found, chosen)
    if drawn is not None:
        console.print(f"Picture: {drawn}", soft_wrap=True)


def print_comparison(console: Console, found: Comparison, split: str) -> None:
    console.print(success_table(found, split))
    print_details(console, found)


def print_details(console: Console, found: Comparison) -> None:
    """Costs, paired tests and what has to be known about them."""
    for table in _detail_tables(found):
        console.print(table)
    for note in found.notes:
        console.print(f"Note: {note}", soft_wrap=True, markup=False)


def _detail_tables(found: Comparison) -> list[Table]:
    paired = [_pair_table(found), _world_table(found)] if found.pairs else []
    return [_cost_table(found.groups), *paired]


def success_table(found: Comparison, split: str) -> Table:
    table = Table(title=f"Success (%) on {split} tasks, 95 % intervals", title_justify="left", caption_justify="left")
    _add_names(table, "method", [group.label for group in found.groups])
    table.add_column("seeds", justify="right")
    for name in found.groups[0].successes:
        table.add_column(name, justify="right")
    table.add_column("macro", justify="right")
    table.add_column("micro", justify="right")
    for group in found.groups:
        by_seed = list(group.macro_by_seed().values())
        spread = f"\n{percent(min(by_seed))} to {percent(max(by_seed))}" if len(by_seed) > 1 else ""
        cells = [group.world(name) for name in group.successes]
        table.add_row(
            group.label,
            str(len(group.runs)),
            *[_cell(*cell) for cell in cells],
            _cell(*group.macro()) + spread,
            _cell(*group.micro()),
        )
    tasks = ", ".join(f"{name} {world.shape[1]}" for name, world in found.groups[0].successes.items())
    table.caption = f"tasks: {tasks}"
    if any(len(group.runs) > 1 for group in found.groups):
        table.caption += "; each task is one trial, however many seeds played it; third line: macro by seed"
    return table


def _add_names(table: Table, title: str, names: Sequence[str]) -> None:
    """A column of methods that is as wide as the longest word in it: `learning_rate=0.7` is read as a whole."""
    longest = max((len(word) for name in names for word in name.split()), default=1)
    table.add_column(title, overflow="fold", min_width=min(longest, _WIDEST_WORD))


def _cell(share: float, bounds: tuple[float, float]) -> str:
    return f"{percent(share)}\n({interval(bounds)})"


def _pair_table(found: Comparison) -> Table:
    table = Table(
        title="Paired on the same tasks, all worlds together, 95 % intervals",
        title_justify="left",
        caption_justify="left",
    )
    _add_names(table, "", [pair.ours for pair in found.pairs])
    _add_names(table, "against", [pair.theirs for pair in found.pairs])
    for column in ("seeds", "macro", "micro", "p (Holm)"):
        table.add_column(column, justify="right")
    table.add_column("verdict", overflow="fold")
    for pair in found.pairs:
        item = pair.found
        table.add_row(
            pair.ours,
            pair.theirs,
            str(len(pair.seeds)),
            f"{100 * item.macro:+.1f}\n{_points(item.macro_interval)}{_over_seeds(item)}",
            f"{100 * item.micro:+.1f}\n{_points(item.micro_interval)}",
            p_value(pair.p),
            pair.verdict,
        )
    table.caption = (
        "differences in points; p: exact sign-flip test over tasks (McNemar's with one seed), corrected for "
        f"{counted(len(found.pairs), 'comparison')}; intervals: bootstrap of seeds and tasks"
    )
    if any(pair.found.seeds_interval for pair in found.pairs):
        table.caption += "; t: Student's, over the seeds alone"
    return table


def _over_seeds(item: Difference) -> str:
    return f"\nt {_points(item.seeds_interval)}" if item.seeds_interval else ""


def _world_table(found: Comparison) -> Table:
    worlds = list(found.groups[0].successes)
    table = Table(
        title="World by world: difference in points, 95 %, p (Holm)", title_justify="left", caption_justify="left"
    )
    _add_names(table, "", [pair.ours for pair in found.pairs])
    _add_names(table, "against", [pair.theirs for pair in found.pairs])
    for name in worlds:
        table.add_column(name, justify="right")
    for pair in found.pairs:
        table.add_row(pair.ours, pair.theirs, *[_world_cell(pair, name) for name in worlds])
    table.caption = (
        f"corrected for {counted(len(found.pairs) * len(worlds), 'comparison')}; *: test and interval (over seeds "
        "and tasks) agree that there is a difference (with one seed: between these runs)"
    )
    return table


def _world_cell(pair: Pair, world: str) -> str:
    item = pair.found.by_world[world]
    mark = "*" if pair.differs_in(world) else ""
    return f"{100 * item.share:+.1f}{mark}\n{_points(item.interval)}\n{p_value(pair.by_world[world])}"


def _cost_table(groups: Sequence[Group]) -> Table:
    table = Table(title="What the rounds took, mean over seeds", title_justify="left", caption_justify="left")
    _add_names(table, "method", [group.label for group in groups])
    for column in ("rounds", "tokens sampled", "tokens learned", "minutes", "MB of adapters"):
        table.add_column(column, justify="right")
    with_hints = any(run.costs[run.round].hint_tokens for group in groups for run in group.runs)
    if with_hints:
        table.add_column("tokens of hints", justify="right")
    for group in groups:
        last = [run.costs[run.round] for run in group.runs]
        sent = [cost.bytes for cost in last if cost.bytes is not None]
        learned = [cost.learned_tokens for cost in last if cost.learned_tokens is not None]
        table.add_row(
            group.label,
            group.rounds,
            f"{_mean([cost.explored_tokens for cost in last]):,.0f}",
            f"{_mean(learned):,.0f}" if learned else "-",
            f"{_mean([cost.seconds for cost in last]) / 60:,.1f}",
            f"{_mean(sent) / 1e6:,.2f}" if sent else "trajectories",
            *([f"{_mean([cost.hint_tokens for cost in last]):,.0f}"] if with_hints else []),
        )
    table.caption = (
        "minutes with the evaluations of the rounds; adapters up and down; pooled methods move trajectories instead"
    )
    return table


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _points(bounds: tuple[float, float]) -> str:
    return f"{100 * bounds[0]:+.1f} to {100 * bounds[1]:+.1f}"


def p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
