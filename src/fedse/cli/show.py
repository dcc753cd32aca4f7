"""`fedse show RUN`: what a run reached, and one of its trajectories to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedse.cli.console import NO_PICTURE, make_console, warn
from fedse.cli.splits import checked_split
from fedse.federation.client_status import ClientStatus
from fedse.types import Outcome, Purpose

if TYPE_CHECKING:
    from fedse.evaluation.forgetting import Forgetting
    from fedse.runs.reading import RunView
    from fedse.types import Trajectory


def show(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    client: Annotated[str, typer.Option(help="Only trajectories of this client.")] = "",
    round_number: Annotated[
        int | None, typer.Option("--round", min=1, help="Round it was played in; default: the last.")
    ] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only those with this outcome.")] = None,
    purpose: Annotated[Purpose | None, typer.Option(help="Only those played for this purpose.")] = None,
    split: Annotated[str, typer.Option(help="Episodes of an evaluation instead: train, validation or test.")] = "",
    number: Annotated[int, typer.Option(min=1, help="Which match to print (1 = first).")] = 1,
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw what the probe `drift` found, rounds against worlds (PNG).")
    ] = None,
) -> None:
    """Print the run's table and one trajectory, with the thought, action and observation of each step."""
    from fedse.cli.tables import evaluation_table, forgetting_table, learned_shares_table, side_by_side_table
    from fedse.evaluation.curves import curves
    from fedse.evaluation.forgetting import forgetting
    from fedse.evaluation.learned_shares import learned_shares
    from fedse.evaluation.side_by_side import side_by_side
    from fedse.experiments.completion import why_stopped
    from fedse.experiments.methods import in_words
    from fedse.experiments.running import stored_experiment
    from fedse.federation.refusals import refusals_of
    from fedse.runs import provenance
    from fedse.runs.in_use import in_use
    from fedse.runs.reading import RunView

    folder = RunView.existing(run)
    if split:
        checked_split(split)
    if round_number is not None:
        folder.digest_of(round_number)
    if client:
        _check_client(folder, client)
    console = make_console()
    console.print(in_words(stored_experiment(folder)), soft_wrap=True)
    makers = folder.makers()
    for maker in makers if any(makers) else []:
        console.print(f"Made with {provenance.in_words(maker)}.", soft_wrap=True, highlight=False)
    console.print(_rounds_table(folder, curves(folder)))
    for line in _spent(folder):
        console.print(line, soft_wrap=True, highlight=False)
    if found := side_by_side(folder):
        console.print(side_by_side_table(found))
    if shares := learned_shares(folder):
        console.print(learned_shares_table(shares))
    remembered = forgetting(folder)
    if remembered.worlds:
        console.print(forgetting_table(remembered))
    if picture is not None:
        _draw_drift(console, remembered, folder, picture)
    warn(console, refusals_of(folder))
    if (why := why_stopped(folder)) and in_use(folder.path) is False:
        warn(console, [f"The run stopped before it was done: {why}"])
    for path in folder.missing():
        console.print(f"{path} is missing: the tables are without it.", soft_wrap=True, markup=False)
    last = folder.last_round() or 0
    test = folder.evaluation("test", last)
    if test is not None:
        console.print(evaluation_table(test, f"test, adapter after round {last}"))
    if not (folder.path / "clients").is_dir():
        console.print("The trajectories of this run are on the machines of its sites.")
        return
    name = f"{split}-{round_number or last:04d}" if split else f"{round_number or last:04d}"
    fitting = list(_fitting(folder, client, name, outcome, purpose))
    if number > len(fitting):
        console.print(f"No such trajectory: {len(fitting)} of round {round_number or last} match, not {number}.")
        return
    print_trajectory(console, fitting[number - 1], f"{number} of {len(fitting)} that match")


def _draw_drift(console: Console, found: Forgetting, folder: RunView, target: Path) -> None:
    from fedse.errors import BadInput
    from fedse.evaluation.drift_plot import draw_drift

    if not found.worlds:
        raise BadInput(f"{folder.path} has nothing to draw: the experiment needs `probes: [drift]`.")
    if draw_drift(found, f"{folder.path.name}: the same validation tasks after each round", target) is None:
        console.print(NO_PICTURE, markup=False)
    else:
        console.print(f"Picture: {target}", soft_wrap=True)


def _rounds_table(folder: RunView, found: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(
        title=f"{folder.path.name}: validation success (%) of the adapter after each round", title_justify="left"
    )
    table.add_column("after round", justify="right")
    for name in found:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("loss", justify="right")
    table.add_column("product gap", justify="right")
    sat_out = {number: _sat_out(folder.report(number)) for number in range(1, (folder.last_round() or 0) + 1)}
    if any(sat_out.values()):
        table.add_column("sat out")
        table.caption = "sat out: clients that had nothing to learn from yet"
    evaluated = {row["adapter"] for rows in found.values() for row in rows}
    for number in sorted(evaluated | {number for number, clients in sat_out.items() if clients}):
        cells = []
        for rows in found.values():
            row = next((row for row in rows if row["adapter"] == number), None)
            if row is None or row["success"] is None:
                cells.append("-")
            else:
                low, high = row["interval"]
                success = f"{100 * row['success']:.0f} ({100 * low:.0f}-{100 * high:.0f})"
                cells.append(f"{success}\n[dim]{100 * (row['invalid'] or 0):.0f} % invalid[/]")
        report = folder.report(number) or {}
        losses = [
            entry["metrics"]["loss"]
            for entry in report.get("clients", {}).values()
            if entry["metrics"].get("loss") is not None
        ]
        gap = report.get("diagnostics", {}).get("product_gap")
        table.add_row(
            str(number),
            *cells,
            f"{sum(losses) / len(losses):.3f}" if losses else "-",
            "-" if gap is None else f"{100 * gap:.1f} %",
            *([", ".join(sat_out.get(number, []))] if any(sat_out.values()) else []),
        )
    return table


def _spent(folder: RunView) -> Iterator[str]:
    """What noise has left others to learn: that of the server about one site, that of sites about one trajectory."""
    last = folder.last_round() or 0
    reports = [folder.report(number) or {} for number in range(1, last + 1)]
    told = [report.get("diagnostics", {}).get("epsilon") for report in reports]
    spent = [value for value in told if value is not None]
    if spent:
        yield f"Epsilon {spent[-1]:.2f} after round {last}: what all shared adapters tell about any one site at most."
    of_sites: dict[str, float] = {}
    for report in reports:
        for name, entry in report.get("clients", {}).items():
            if (value := entry["metrics"].get("epsilon")) is not None:
                of_sites[name] = value
    if of_sites and _learns_under_noise(folder):
        listed = ", ".join(f"{name} {value:.2f}" for name, value in sorted(of_sites.items()))
        yield (
            f"Epsilon after round {last}: {listed}. All adapters of a site together reveal at most this much about any one "
            "of its trajectories."
        )


def _learns_under_noise(folder: RunView) -> bool:
    """A learner may call something else epsilon."""
    from fedse.experiments.options import experiment_of
    from fedse.plugins import capability

    return capability(experiment_of(folder.path).learner, "draws_noise")


def _sat_out(report: dict[str, Any] | None) -> list[str]:
    """Clients without experience in a round."""
    entries: dict[str, Any] = (report or {}).get("clients", {})
    return [name for name, entry in entries.items() if entry.get("state") == ClientStatus.NOTHING_TO_LEARN_FROM]


def _clients(folder: RunView) -> list[str]:
    return sorted(path.name for path in (folder.path / "clients").glob("*"))


def _check_client(folder: RunView, client: str) -> None:
    from fedse.errors import BadInput
    from fedse.plugins import nearest_or_all

    clients = _clients(folder)
    # Those of a federation over several machines are not here, and none of them is unknown for that.
    if clients and client not in clients:
        raise BadInput(f"--client {client}: {nearest_or_all(client, clients, 'This run has:')}.")


def _fitting(
    folder: RunView, client: str, name: str, outcome: Outcome | None, purpose: Purpose | None
) -> Iterator[Trajectory]:
    from fedse.experience.journal import Journal

    for owner in [client] if client else _clients(folder):
        folder.check_journal(owner, name)
        for trajectory in Journal(folder.client_folder(owner) / "episodes").read(name):
            if outcome in (None, trajectory.outcome) and purpose in (None, trajectory.purpose):
                yield trajectory


def print_trajectory(console: Console, trajectory: Trajectory, position: str) -> None:
    colour = {"success": "green", "failure": "yellow", "error": "red"}[trajectory.outcome]
    console.rule(
        f"[bold]{trajectory.client}[/] · {trajectory.world} · task {trajectory.task} · round {trajectory.round} · "
        f"{trajectory.purpose} · [{colour}]{trajectory.outcome}[/] · {position}"
    )
    for count, step in enumerate(trajectory.steps, start=1):
        console.print(Text(f"{count:>2}  ", style="dim") + Text(step.observation, style="cyan"))
        if step.hint:
            console.print(Text("    Hint:    ", style="dim") + Text(step.hint, style="magenta"))
        if step.action:
            if step.thought:
                console.print(Text("    Thought: ", style="dim") + Text(step.thought))
            mark = Text("" if step.valid else "   (invalid)", style="red")
            console.print(Text("    Action:  ", style="dim") + Text(step.action, style="bold") + mark)
        else:
            console.print(
                Text("    Reply:   ", style="dim") + Text(repr(step.reply)) + Text("   (unparsable)", style="red")
            )
    if trajectory.closing:
        console.print(Text("    ", style="dim") + Text(trajectory.closing, style="cyan"))
    if trajectory.detail:
        console.print(Text(trajectory.detail, style="red"))
