"""What a checker found, as worlds and aggregators print it."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console

from fedse.plugins.promises import Finding


def tell(console: Console, name: str, findings: Sequence[Finding], left_out: str) -> None:
    """One line for each promise; leaves with code 1 when one is broken. `left_out` is what is said of those not made."""
    for finding in findings:
        sign = "[red]FAIL[/]" if not finding.passed else "[green]ok  [/]" if finding.made else "-   "
        console.print(f"{sign} [bold]{finding.name}[/]: ", end="")
        console.print(finding.detail, markup=False, highlight=False)
    failed, made = sum(not finding.passed for finding in findings), sum(finding.made for finding in findings)
    whole = made == len(findings)
    rest = "" if whole else f"; {len(findings) - made} {left_out}"
    if failed:
        console.print(f"\n{name} breaks {failed} of {made} promises{rest}.")
        raise typer.Exit(1)
    console.print(f"\n{name} keeps {'all' if whole else 'its'} {made} promises{rest}.")
