"""What a checker found, as worlds and aggregators print it."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from fedse.plugins.promises import Finding


def tell(console: Console, name: str, findings: Sequence[Finding]) -> None:
    """One line for each promise; leaves with code 1 when one is broken."""
    for finding in findings:
        sign = "[green]ok  [/]" if finding.passed else "[red]FAIL[/]"
        console.print(f"{sign} [bold]{finding.name}[/]: ", end="")
        console.print(finding.detail, markup=False, highlight=False)
    failed = sum(not finding.passed for finding in findings)
    if failed:
        console.print(f"\n{name} breaks {failed} of {len(findings)} promises.")
        raise typer.Exit(1)
    console.print(f"\n{name} keeps all {len(findings)} promises.")
