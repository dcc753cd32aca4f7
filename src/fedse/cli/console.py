"""The terminal, or a page wide enough for the tables where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

PAGE = 120


def make_console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=PAGE)
