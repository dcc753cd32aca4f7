"""The commands of fedse as Markdown, read from the command line's own parser."""

from __future__ import annotations

from collections.abc import Iterator

import click
from typer.main import get_command

from fedse.cli import app


def render() -> str:
    return "\n".join(["## All arguments", "", *_command(get_command(app), "fedse", 3)])


def _command(command: click.Command, path: str, level: int) -> Iterator[str]:
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield from _entry(command, path, level)
        for name, inner in command.commands.items():
            yield from _command(inner, f"{path} {name}", level)
    else:
        yield from _entry(command, path, level)


def _entry(command: click.Command, path: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield from (f"{'#' * level} {path}", "", f"`{context.get_usage().removeprefix('Usage: ')}`", "")
    yield from (_text(command.help or ""), "")
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if shown:
        yield from ("| argument | default | meaning |", "| --- | --- | --- |")
        for parameter in shown:
            yield _row(parameter, context)
        yield ""


def _row(parameter: click.Parameter, context: click.Context) -> str:
    record = parameter.get_help_record(context)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    name = names if isinstance(parameter, click.Option) else parameter.make_metavar(context)
    meaning = getattr(parameter, "help", None) or (
        record[1] if record and not isinstance(parameter, click.Option) else ""
    )
    default = parameter.default
    shown = "" if default is None or callable(default) or default in ((), [], "", False) else f"`{default}`"
    return f"| `{name}` | {'required' if parameter.required else shown} | {_text(meaning)} |"


def _text(words: str) -> str:
    return " ".join(words.replace("|", "\\|").split())
