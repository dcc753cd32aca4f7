"""`fedse plugins`: every slot of an experiment, and what can stand in it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedse.cli.console import make_console
from fedse.errors import UnknownName
from fedse.plugins import known, nearest_or_all, options_of, resolve, summary
from fedse.plugins.shipped import KNOWN


def _slots(beginning: str) -> list[str]:
    return [slot for slot in KNOWN if slot.startswith(beginning)]


def plugins(
    slot: Annotated[
        str, typer.Argument(help="A slot, such as filter; default: all.", autocompletion=_slots, show_default=False)
    ] = "",
) -> None:
    """List the plug-ins of every slot, or of one slot, with their options. Installed packages are included."""
    if slot and slot not in KNOWN:
        raise UnknownName(f"there is no slot '{slot}': {nearest_or_all(slot, KNOWN, 'Slots:')}.")
    console = make_console()
    if not slot:
        console.print("Importing the plug-ins of every slot")
    table = Table(title="Plug-ins", title_justify="left")
    for heading in ("slot", "name", "what it is", "options"):
        table.add_column(heading)
    for kind in [slot] if slot else KNOWN:
        table.add_section()
        for number, name in enumerate(known(kind)):
            options = ", ".join(options_of(kind, name).model_fields)
            table.add_row("" if number else kind, Text(name), Text(summary(resolve(kind, name))), Text(options or "-"))
        if not known(kind):
            table.add_row(kind, "-", "none in the package: give a class of your own, as 'package.module:Class'", "-")
    console.print(table)
    console.print(
        "What each option means: docs/reference.md, or fedse reference. A class of your own: docs/howto/plugins.md."
    )
