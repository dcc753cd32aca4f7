"""The command line. One file for each command; here they only get their names."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from click.exceptions import NoSuchCommand
from typer.core import TyperGroup

from fedse import __version__
from fedse.cli import (
    aggregators,
    audit,
    compare,
    demo,
    doctor,
    evaluate,
    explored,
    export,
    generations,
    hub,
    interrupts,
    merge,
    models,
    new,
    play,
    plugins,
    profile,
    reference,
    reproduce,
    run,
    runs,
    serve,
    show,
    site,
    sweep,
    transfer,
    view,
    weigh,
    worlds,
)
from fedse.cli.console import say
from fedse.errors import FedseError


class _Group(TyperGroup):
    """Prints the sentence of an expected error and leaves with its code; anything unexpected keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FedseError as error:
            say(f"fedse: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except NoSuchCommand as error:
            # Click itself names the commands that are near; in the sentence that typer makes of it they stand twice.
            raise NoSuchCommand(error.command_name, possibilities=error.possibilities, ctx=error.ctx) from None


app = typer.Typer(
    cls=_Group,
    help="Federated self-evolution of language-model agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        say(f"fedse {__version__}")
        raise typer.Exit


@app.callback()
def fedse(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("eval")(evaluate.evaluate)
app.command("sweep")(sweep.sweep)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("transfer")(transfer.transfer)
app.command("audit")(audit.audit)
app.command("merge")(merge.merge)
app.command("weigh")(weigh.weigh)
app.command("show")(show.show)
app.command("explored")(explored.explored)
app.command("generations")(generations.generations)
app.command("view")(view.view)
app.command("report")(view.report)
app.command("export")(export.export)
app.command("serve")(serve.serve)
app.command("play")(play.play)
app.command("plugins")(plugins.plugins)
app.command("profile")(profile.profile)
app.command("doctor")(doctor.doctor)
app.command("reference")(reference.reference)
app.add_typer(aggregators.app, name="aggregators")
app.add_typer(hub.app, name="hub")
app.add_typer(site.app, name="site")
app.add_typer(models.app, name="models")
app.add_typer(new.app, name="new")
app.add_typer(runs.app, name="runs")
app.add_typer(worlds.app, name="worlds")


def main() -> None:
    # Torch's threads spin while they wait for each other; beside any other busy process that made runs several times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A class in a file beside the experiment is found as `my_file:MyClass`; last, so that no file here hides a library.
    sys.path.append("")
    interrupts.never_lose_one()
    try:
        app(prog_name="fedse")
    except SystemExit as leaving:
        if leaving.code in (interrupts.CODE, interrupts.TERMINATED):
            interrupts.leave(leaving.code)
        raise
