"""Which adapter enters the next round: the one that was just made, or that of the best round if it went wrong.

    cheap proxy   success on the tasks of the round, by the adapter that entered it, against every earlier round
    slow truth    only if it fell by more than `drop`: both adapters on all validation tasks (`evaluation.tasks`)
    roll back     if that is so there too: the next round begins with the state after the best round

An adapter is measured in the round that it enters, so what goes wrong in one round is taken back in the next, and the
updates of that one, learned from the bad adapter, are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from fedse.plugins import PluginOptions
from fedse.runs.reading import RunView

Rows = Sequence[Mapping[str, Any]]
"""What was measured of an adapter, by client and world, as reports and evaluations have it."""


class PromotionOptions(PluginOptions):
    """When a shared adapter is taken back."""

    drop: float = Field(default=0.1, gt=0, le=1)
    """An adapter whose success is lower than that of an earlier round by more than this is doubted, and taken back if all
    validation tasks say the same. Both are means over worlds, of the sites that measured both adapters."""


class Doubt(NamedTuple):
    """An adapter that seems to have gone wrong, and the one to go back to."""

    adapter: int
    """The round that made it."""
    best: int
    """The round that made the best one."""
    fell: float
    """By how much success fell between the two."""


def doubted(run: RunView, number: int, rows: Rows, drop: float) -> Doubt | None:
    """What the tasks of a round say of the adapter that entered it, whose `rows` they are."""
    entered = number - 1
    falls = {}
    for adapter in range(entered):
        fell = _fall(((run.report(adapter + 1) or {}).get("evaluation") or {}).get("worlds", ()), rows)
        if fell is not None:
            falls[adapter] = fell
    if not falls:
        return None
    best = max(falls, key=lambda adapter: (falls[adapter], -adapter))
    return Doubt(entered, best, falls[best]) if falls[best] > drop else None


def confirmed(doubt: Doubt, measured: Callable[[int], Rows], drop: float) -> float | None:
    """By how much success fell on all validation tasks, if that is more than `drop`; None otherwise."""
    fell = _fall(measured(doubt.best), measured(doubt.adapter))
    return fell if fell is not None and fell > drop else None


def _fall(before: Rows, now: Rows) -> float | None:
    """Of the mean over what was measured both times; None where that is nothing."""
    earlier, later = _shares(before), _shares(now)
    both = sorted(earlier.keys() & later.keys())
    return sum(earlier[key] - later[key] for key in both) / len(both) if both else None


def _shares(rows: Rows) -> dict[tuple[str, str], float]:
    return {(row["client"], row["world"]): row["success"] for row in rows if row["success"] is not None}
