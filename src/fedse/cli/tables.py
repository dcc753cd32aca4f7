"""Tables that several commands print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rich.table import Table

from fedse.evaluation.curves import from_the_beginning
from fedse.evaluation.forgetting import Forgetting, Remembered
from fedse.evaluation.side_by_side import SideBySide, mean_change

Of = TypeVar("Of")
"""What a table tells of one name in one round."""


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def interval(bounds: Any) -> str:
    return f"{100 * bounds[0]:.0f}-{100 * bounds[1]:.0f}"


def markdown(table: Table) -> str:
    """The same table for a page: title above, caption below."""
    headers = [str(column.header) for column in table.columns]
    lines = [
        f"**{table.title}**",
        "",
        _line(headers),
        _line("---:" if column.justify == "right" else "---" for column in table.columns),
    ]
    lines += [_line(cells) for cells in zip(*(column.cells for column in table.columns), strict=True)]
    return "\n".join([*lines, *(["", str(table.caption)] if table.caption else [])])


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(_escaped(str(cell)) for cell in cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("\n", "<br>").replace("|", "\\|")


def evaluation_table(result: Mapping[str, Any], title: str) -> Table:
    """Success of each client and world, beside what a trivial policy and the expert reach on the same tasks."""
    table = Table(title=f"Success (%), {title}", caption=_caption(result), title_justify="left", caption_justify="left")
    for column in ("client", "world"):
        table.add_column(column)
    for column in ("success", "95 %", "floor", "ceiling", "tasks", "steps", "tokens", "invalid %", "errors"):
        table.add_column(column, justify="right")
    for row in result["worlds"]:
        table.add_row(
            row["client"],
            row["world"],
            percent(row["success"]),
            interval(row["interval"]),
            percent(row["floor"]),
            percent(row["ceiling"]),
            str(row["episodes"]),
            _number(row["steps"]),
            _number(row["tokens"]),
            percent(row["invalid"]),
            ", ".join(f"{kind} {count}" for kind, count in row["errors"].items()) or "0",
        )
    return table


def change_table(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Success of each world before the first and after the last round, on the same validation tasks. Sites that joined
    later are no part of the mean: their first adapter has learned already."""
    table = Table(title="Success (%) on validation tasks, before and after", title_justify="left")
    table.add_column("client")
    for column in ("before", "95 %", "after", "95 %", "change", "floor", "ceiling", "tasks"):
        table.add_column(column, justify="right")
    complete = {name: rows for name, rows in curves.items() if None not in (rows[0]["success"], rows[-1]["success"])}
    compared = from_the_beginning(complete)
    for name, rows in complete.items():
        first, last = rows[0], rows[-1]
        since = "" if name in compared else f" (round {first['adapter'] + 1})"
        table.add_row(
            name,
            f"{percent(first['success'])}{since}",
            interval(first["interval"]),
            percent(last["success"]),
            interval(last["interval"]),
            f"{100 * (last['success'] - first['success']):+.1f}",
            percent(last["floor"]),
            percent(last["ceiling"]),
            str(last["episodes"]),
        )
    if complete:
        before, after = (sum(rows[at]["success"] for rows in compared.values()) / len(compared) for at in (0, -1))
        table.caption = f"macro {percent(before)} before, {percent(after)} after: {100 * (after - before):+.1f} points"
        if len(compared) < len(complete):
            table.caption += "; without those first measured in a later round, which stands beside their `before`"
        table.caption_justify = "left"
    return table


def _fill(table: Table, first: str, found: Mapping[str, Mapping[int, Of]], shown: Callable[[Of | None], str]) -> None:
    """A row for each round and a column for each name."""
    table.add_column(first, justify="right")
    for name in found:
        table.add_column(name, justify="right", no_wrap=True)
    for number in sorted({number for rounds in found.values() for number in rounds}):
        table.add_row(str(number), *(shown(rounds.get(number)) for rounds in found.values()))


def side_by_side_table(found: Mapping[str, Mapping[int, SideBySide]]) -> Table:
    """What aggregation made of what each client had learned, round by round."""
    table = Table(
        title="Validation success (%) after learning / as broadcast / difference",
        caption="each client on the same tasks: with what it had learned in the round, and with what it made of the adapter "
        "that came back; a negative difference is what aggregation took away",
        title_justify="left",
        caption_justify="left",
    )
    _fill(table, "round", found, _beside)
    table.add_section()
    table.add_row("mean", *(_points(mean_change(rounds)) for rounds in found.values()))
    return table


def learned_shares_table(found: Mapping[str, Mapping[int, float]]) -> Table:
    """Which worlds the lessons of sites with several of them are made of."""
    table = Table(title="Share of the learned tokens (%) by world", title_justify="left")
    _fill(table, "round", found, percent)
    return table


def forgetting_table(found: Forgetting) -> Table:
    """What was known once, and is not known with the adapter of a round."""
    table = Table(
        title="Drift: validation success (%) / forgotten (points) / invalid actions (%)",
        caption="forgotten: how far success on the same tasks is below the shared adapter's best before; negative where "
        "it is the best so far"
        + ("; learned: with what each client had learned, before aggregation" if found.learned else ""),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("after round", justify="right")
    if found.learned:
        table.add_column("adapter")
    for name in found.worlds:
        table.add_column(name, justify="right", no_wrap=True)
    for line in found.lines():
        whose = [line.adapter] if found.learned else []
        table.add_row(str(line.round), *whose, *map(_remembered, line.cells))
    return table


def _remembered(known: Remembered | None) -> str:
    if known is None:
        return "-"
    return f"{percent(known.success)} / {_points(known.forgotten)} / {percent(known.invalid)}"


def _beside(pair: SideBySide | None) -> str:
    if pair is None:
        return "-"
    return f"{percent(pair.after_learning)} / {percent(pair.as_broadcast)} / {_points(pair.change)}"


def _points(change: float | None) -> str:
    return "-" if change is None else f"{100 * change:+.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _caption(result: Mapping[str, Any]) -> str:
    if result["micro"] is None:
        return "nothing was played to its end"
    return (
        f"macro {percent(result['macro'])}, micro {percent(result['micro'])} "
        f"({interval(result['micro_interval'])}) over {result['episodes']} episodes; greedy, frozen; "
        "steps and tokens are means per episode"
    )
