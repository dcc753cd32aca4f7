"""A success and a failure at the same task, to be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedse.objectives.cases import Case
from fedse.objectives.groups import Group
from fedse.types import Outcome, Trajectory


def pairs_of(groups: Iterable[Group], remembered: Iterable[Trajectory], most: int) -> list[Case]:
    """At most so many of each group. Each failure is paired with another success as long as there are some."""
    known: dict[tuple[str, str], Group] = {}
    for item in remembered:
        known.setdefault((item.world, item.task), []).append(item)
    return [case for group in groups for case in _pairs(group, known.get((group[0].world, group[0].task), []))[:most]]


def _pairs(group: Group, remembered: Sequence[Trajectory]) -> list[Case]:
    """Successes of this round first: they were explored by the same adapter as the failures."""
    losers = [item for item in group if item.outcome is Outcome.FAILURE]
    winners = [*(item for item in group if item.outcome is Outcome.SUCCESS), *remembered]
    return [Case((winners[at % len(winners)], loser), (1.0, -1.0)) for at, loser in enumerate(losers) if winners]
