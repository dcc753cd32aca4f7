"""Forgetting: by how much success in a world has fallen since its best time, as a matrix of rounds and worlds.

    F(t, world) = max over s < t of success(s, world), minus success(t, world)

Negative where the adapter of round t is the best so far. It is of the probe `drift`, whose tasks are the same every time. Of
what a client had learned in round t, before aggregation, it is the same with that success in the place of success(t): what
the client has forgotten itself. The rest of F is what aggregation took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedse.evaluation.curves import is_of_passed_mean
from fedse.evaluation.measured import world_name
from fedse.runs.reading import RunView

DRIFT = "drift"
LEARNED = "_learned"
"""What follows a probe's name where it tells of what clients had learned."""


class Remembered(NamedTuple):
    """What an adapter of a round does in a world."""

    success: float
    forgotten: float | None
    """None where nothing was measured there before."""
    invalid: float | None = None
    """The share of its actions that break the world's rules, or the site's contract."""


class Line(NamedTuple):
    round: int
    adapter: str
    cells: list[Remembered | None]
    """Of each world."""


class Forgetting(NamedTuple):
    """Of each client and world the rounds that were measured, in their order."""

    shared: dict[str, dict[int, Remembered]]
    """With the adapter that clients enter the next round with."""
    learned: dict[str, dict[int, Remembered]]
    """With what each client had learned in the round, before aggregation."""

    @property
    def worlds(self) -> list[str]:
        return sorted({*self.shared, *self.learned})

    def lines(self) -> Iterator[Line]:
        """The matrix, a line for each round and adapter, in the order in which they came about."""
        measured = [*self.shared.values(), *self.learned.values()]
        for number in sorted({number for rounds in measured for number in rounds}):
            for adapter, worlds in (("learned", self.learned), ("shared", self.shared)):
                cells = [worlds.get(name, {}).get(number) for name in self.worlds]
                if any(cells):
                    yield Line(number, adapter, cells)


def forgetting(run: RunView) -> Forgetting:
    """Nothing without the probe."""
    last = run.last_round() or 0
    reports = {number: run.report(number) or {} for number in range(1, last + 1)}
    told = {
        number: {client: entry.get("probes", {}) for client, entry in report.get("clients", {}).items()}
        for number, report in reports.items()
    }
    shared: dict[str, dict[int, Any]] = {}
    learned: dict[str, dict[int, Any]] = {}
    for number in range(last + 1):
        evaluation = None if is_of_passed_mean(run, number) else run.evaluation("validation", number)
        closing = (evaluation or {}).get("probes", {})
        for rows in (_rows(told.get(number + 1, {}), DRIFT), _rows(closing, DRIFT)):
            for name, row in rows.items():
                shared.setdefault(name, {})[number] = row
        for name, row in _rows(told.get(number, {}), DRIFT + LEARNED).items():
            learned.setdefault(name, {})[number] = row
    return Forgetting(
        {name: _compared(rounds, rounds) for name, rounds in sorted(shared.items())},
        {name: _compared(rounds, shared.get(name, {})) for name, rounds in sorted(learned.items())},
    )


def _compared(rounds: Mapping[int, Any], shared: Mapping[int, Any]) -> dict[int, Remembered]:
    """Each with the best shared adapter of an earlier round."""
    found = {}
    for number, row in sorted(rounds.items()):
        best = max((other["success"] for earlier, other in shared.items() if earlier < number), default=None)
        lost = None if best is None else best - row["success"]
        found[number] = Remembered(row["success"], lost, row.get("invalid"))
    return found


def _rows(probes: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {
        world_name(row["client"], row["world"]): row
        for measured in probes.values()
        for row in measured.get(name, [])
        if row["success"] is not None
    }
