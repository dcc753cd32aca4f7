"""The round whose adapter did best on the validation: where a run fell off a cliff, the one to go back to."""

from __future__ import annotations

from fedse.errors import BadInput
from fedse.evaluation.curves import curves
from fedse.runs.reading import RunView


def best_round(run: RunView, client: str = "", first: int = 0) -> int:
    """By the mean over worlds, or over those of one client; the earliest of several, from `first` on. Rounds in which one of
    them was not measured do not count. The tasks are those that were played on the way (`evaluation.tasks_per_round`)."""
    measured = (row for world in curves(run).values() for row in world if row["adapter"] >= first)
    rows = [row for row in measured if client in ("", row["client"])]
    shares: dict[int, list[float]] = {}
    for row in rows:
        if row["success"] is not None:
            shares.setdefault(row["adapter"], []).append(row["success"])
    most = max(map(len, shares.values()), default=0)
    means = {number: sum(values) / most for number, values in shares.items() if len(values) == most}
    if not means:
        whose = f" of client '{client}'" if client else ""
        raise BadInput(f"{run.path} has no validation{whose} to choose a round by: give its number.")
    return min(means, key=lambda number: (-means[number], number))
