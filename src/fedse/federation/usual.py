"""How far updates usually go, and which go far beyond it: compared with the others of the round and with earlier rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median, median_low

from fedse.runs.reading import RunView

REMEMBERED = 5
"""Rounds whose updates are looked back at."""
ENOUGH = 3
"""Others whose middle can be relied upon by itself. An adapter's own norm is mostly that of its random start, which says
nothing about how far a round goes."""


def unusual(
    norms: Mapping[str, float], broadcast: float, earlier: Sequence[float], most: float
) -> Iterator[tuple[str, str]]:
    """Clients whose change is more than `most` times the usual one, each with the reason to refuse it.

    Usual is the larger of two: the middle of the other clients' changes, and the middle of what earlier rounds had. With
    fewer than `ENOUGH` others the norm of the broadcast adapter counts as well. So one tiny update does not make honest ones
    look large, and a single client is compared with what was before. Where all of these are nothing, anything is usual.
    """
    for client, norm in norms.items():
        others = [other for name, other in norms.items() if name != client]
        # Of two in the middle the smaller one: the larger may be the one that is wrong.
        usual = max(median_low(others) if others else 0.0, median(earlier) if earlier else 0.0)
        if len(others) < ENOUGH:
            usual = max(usual, broadcast)
        if usual > 0 and norm > most * usual:
            yield (
                client,
                f"its change has norm {norm:.4g}, more than checks.max_ratio = {most:g} times what is usual ({usual:.4g})",
            )


def earlier_norms(run: RunView, number: int) -> list[float]:
    """The middle norm of each of the last rounds up to this one."""
    found = []
    for earlier in range(max(1, number - REMEMBERED + 1), number + 1):
        # A round in which nobody sent anything, or that an older fedse reported otherwise, says nothing.
        with suppress(LookupError, TypeError, ValueError):
            told = (run.report(earlier) or {})["diagnostics"]
            # Of a secure sum only the mean is known.
            norms = told["update_norm"].values() if "update_norm" in told else [told["mean_update_norm"]]
            found.append(median(map(float, norms)))
    return found
