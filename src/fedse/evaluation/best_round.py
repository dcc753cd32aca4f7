"""The round whose adapter did best on the validation: where a run fell off a cliff, the one to go back to."""

from __future__ import annotations

from collections.abc import Set

from fedse.errors import BadInput
from fedse.evaluation.curves import curves
from fedse.runs.reading import RunView


def best_round(run: RunView, client: str = "", first: int = 0) -> int:
    """By the mean over worlds, or over those of one client; the earliest of several, from `first` on. Rounds in which one of
    them was not measured do not count; where these are so many that hardly any is left beside the last, there is no choice.
    The tasks are those that were played: `evaluation.tasks_per_round` on the way, `evaluation.tasks` in the beginning and in
    the end."""
    measured = (row for world in curves(run).values() for row in world if row["adapter"] >= first)
    rows = [row for row in measured if client in ("", row["client"])]
    shares: dict[int, list[float]] = {}
    worlds = set()
    for row in rows:
        if row["success"] is not None:
            shares.setdefault(row["adapter"], []).append(row["success"])
            worlds.add((row["client"], row["world"]))
    if not shares:
        whose = f" of client '{client}'" if client else ""
        raise BadInput(f"{run.path} has no validation{whose} to choose a round by: give its number.")
    means = {number: sum(values) / len(worlds) for number, values in shares.items() if len(values) == len(worlds)}
    on_the_way = means.keys() - {run.last_round()}
    if len(means) < len(shares) and len(on_the_way) < 2:
        raise BadInput(
            f"{run.path}: before the last, there is {_rounds(on_the_way)} after which all worlds were measured, so there is "
            "no best one to choose (a client that takes no part in a round measures nothing): give the round's number, or "
            f"measure some rounds at all clients with `fedse eval {run.path} --round NUMBER --split validation`."
        )
    return min(means, key=lambda number: (-means[number], number))


def _rounds(numbers: Set[int]) -> str:
    return f"only round {min(numbers)}" if numbers else "no round"
