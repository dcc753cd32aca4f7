"""What a tracker must have been told of a run: worked out anew from its reports, evaluations and log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedse.events import EpisodesPlayed, RoundFinished, RoundStarted
from fedse.runs.reading import RunView

Scalars = dict[str, dict[int, float]]


def told_scalars(run: Path) -> Scalars:
    """By name and round."""
    view, found = RunView.existing(run), Scalars()

    def put(name: str, round: int, value: float) -> None:
        found.setdefault(name, {})[round] = value

    last = view.last_round() or 0
    for number in range(1, last + 1):
        report: Any = view.report(number)
        for row in report["evaluation"]["worlds"]:
            put(f"validation/{row['client']}/{row['world']}", number - 1, row["success"])
        for client, entry in report["clients"].items():
            for name, value in entry["counts"].items():
                put(f"experience/{client}/{name}", number, value)
            for name, value in entry["metrics"].items():
                put(f"learning/{client}/{name}", number, value)
    decoded = prefilled = 0
    for logged in view.events():
        match logged.event:
            case RoundStarted():
                decoded = prefilled = 0
            case EpisodesPlayed():
                decoded, prefilled = decoded + logged.event.decoded, prefilled + logged.event.prefilled
            case RoundFinished() as event:
                put("tokens/decoded", event.round, decoded)
                put("tokens/prefilled", event.round, prefilled)
                put("round/seconds", event.round, event.seconds)
                put("round/contributed", event.round, len(event.contributed))
    for number in range(last + 1):
        for split in ("validation", "test"):
            if evaluation := view.evaluation(split, number):
                put(f"{split}/macro", number, evaluation["macro"])
                put(f"{split}/micro", number, evaluation["micro"])
    return found
