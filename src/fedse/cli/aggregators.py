"""`fedse aggregators`: what there is, and whether an aggregator keeps its promises."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from fedse.adapters.plan import in_turn, plan_of
from fedse.aggregators.check import check_aggregator
from fedse.cli.console import make_console
from fedse.cli.findings import tell
from fedse.cli.settings import Settings, names_in, read_settings
from fedse.errors import BadInput
from fedse.plugins import complaint, known, options_of, resolve, summary

app = typer.Typer(help="List the aggregators, or check one.")


def make_aggregator(name: str, settings: list[str] | None) -> Any:
    """The aggregator with this name and these options."""
    kind, options = resolve("aggregator", name), options_of("aggregator", name)
    try:
        return kind(**options.model_validate(read_settings(settings, "learning_rate=0.5")).model_dump())
    except ValidationError as error:
        raise BadInput(f"{name}: {complaint(error, options)}.") from error


@app.callback(invoke_without_command=True)
def aggregators(context: typer.Context) -> None:
    """List the aggregators with what they promise and what clients train and send."""
    if context.invoked_subcommand is not None:
        return
    console = make_console()
    table = Table(title="Aggregators")
    for heading in ("aggregator", "what it does", "promises", "trained", "sent"):
        table.add_column(heading)
    for name in known("aggregator"):
        made = make_aggregator(name, None)
        plans, promised = [plan_of(made).in_round(number) for number in (1, 2)], sorted(getattr(made, "promises", ()))
        trained, given = in_turn(plan.trained for plan in plans), in_turn(plan.sent for plan in plans)
        table.add_row(name, summary(type(made)), ", ".join(promised), trained, given)
    console.print(table)


@app.command("check")
def check(
    name: Annotated[
        str,
        typer.Argument(
            help="A short name such as mean, or package.module:Class.",
            autocompletion=names_in("aggregator"),
            show_default=False,
        ),
    ],
    settings: Settings = None,
) -> None:
    """Check that an aggregator keeps its promises; for authors of aggregators."""
    console = make_console()
    make_aggregator(name, settings)
    tell(console, name, check_aggregator(lambda: make_aggregator(name, settings)), "not promised")
