"""The only way to the terminal, or to a page wide enough for the tables where there is none. Everything passes `visible`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.errors import MarkupError
from rich.segment import Segment
from rich.text import Text

from fedse.errors import how_to_install
from fedse.visible import visible

PAGE = 120
NO_PICTURE = f"No picture: matplotlib is not installed ({how_to_install('plots')})."


class VisibleConsole(Console):
    """Colours are ours. Whatever a text brings along for the terminal is shown and not obeyed, links included."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            if control:
                yield Segment(text, style, control)
            else:
                yield Segment(visible(text), style.update_link(None) if style and style.link else style)

    def render_str(self, text: str, **settings: Any) -> Text:
        try:
            return super().render_str(text, **settings)
        except MarkupError:  # Somebody's brackets, which are no markup of ours.
            return super().render_str(text, **{**settings, "markup": False})


def make_console(err: bool = False) -> Console:
    wide = None if (sys.stderr if err else sys.stdout).isatty() else PAGE
    return VisibleConsole(stderr=err, width=wide)


def warn(console: Console, sentences: Iterable[str]) -> None:
    """What nobody should miss, a line for each."""
    for sentence in sentences:
        console.print(f"WARNING: {sentence}", style="bold red", soft_wrap=True, markup=False, highlight=False)


def say(text: object, err: bool = False, nl: bool = True) -> None:
    """A line without colours."""
    typer.echo(visible(str(text)), err=err, nl=nl)
