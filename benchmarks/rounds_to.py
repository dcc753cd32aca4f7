"""How many rounds, and how many sampled tokens, runs take to a given success on validation tasks, by curriculum.

python benchmarks/rounds_to.py 40 runs/uniform_* runs/sec_*        to 40 %, against `uniform`, paired by seed

rounds    until the curve first reaches it, along the straight line between two rounds; a run that never does counts as
          having needed one round more than it had, and is marked with >
tokens    that the agents had sampled while exploring, at that point of the line
mean      success over all rounds but the first measurement, which comes before anything is learned
fewer     by how much the mean of the rounds is below that of `uniform`, with an interval from seeds drawn again (all ways to
          draw them are counted, so the interval is the same every time)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from fedse.evaluation.curves import curves, macro
from fedse.evaluation.measured import costs
from fedse.experiments.options import experiment_of
from fedse.runs.reading import RunView

CONTROL = "uniform"


class Reached(NamedTuple):
    """Of one run."""

    curriculum: str
    seed: int
    rounds: float
    tokens: float
    reached: bool
    mean: float
    last: float
    curve: list[float]


def crossing(curve: Mapping[int, float], level: float) -> float | None:
    """Where a curve first reaches a level.

    >>> crossing({0: 0.2, 1: 0.3, 2: 0.5}, 0.4), crossing({0: 0.2, 1: 0.3}, 0.4), crossing({0: 0.4, 1: 0.3}, 0.4)
    (1.5, None, 0.0)
    """
    before: tuple[int, float] | None = None
    for number, value in sorted(curve.items()):
        if value >= level:
            if before is None:
                return float(number)
            at, low = before
            return at + (number - at) * (level - low) / (value - low)
        before = number, value
    return None


def measured(path: Path, level: float) -> Reached:
    view, experiment = RunView.existing(path), experiment_of(path)
    curve = macro(curves(view))
    spent = costs(view, sharing=experiment.sharing == "all", pooled=False)
    at = crossing(curve, level)
    last = max(curve)
    tokens = np.interp(last if at is None else at, sorted(spent), [spent[n].explored_tokens for n in sorted(spent)])
    options = [f"{key}={value}" for key, value in sorted(experiment.curriculum.options.items())]
    return Reached(
        curriculum=" ".join([experiment.curriculum.name, *options]),
        seed=experiment.seed,
        rounds=last + 1 if at is None else at,
        tokens=float(tokens),
        reached=at is not None,
        mean=fmean(value for number, value in curve.items() if number),
        last=curve[last],
        curve=[round(curve[number], 4) for number in sorted(curve)],
    )


def fewer(ours: Sequence[float], control: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """By which share the mean of ours is below the control's, pair by pair, with a 95 % interval over pairs drawn again.

    >>> fewer([3.0, 3.0], [4.0, 4.0])
    (0.25, (0.25, 0.25))
    """
    share = 1 - fmean(ours) / fmean(control)
    drawn = [
        1 - sum(ours[index] for index in chosen) / sum(control[index] for index in chosen)
        for chosen in product(range(len(ours)), repeat=len(ours))
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return share, (float(low), float(high))


def compared(runs: Iterable[Reached]) -> dict[str, Any]:
    groups: dict[str, dict[int, Reached]] = {}
    for run in runs:
        groups.setdefault(run.curriculum, {})[run.seed] = run
    found: dict[str, Any] = {}
    for name, group in groups.items():
        own = [group[seed] for seed in sorted(group)]
        found[name] = {
            "seeds": [run.seed for run in own],
            "rounds": [f"{'' if run.reached else '>'}{run.rounds:.1f}" for run in own],
            "mean_rounds": fmean(run.rounds for run in own),
            "tokens": fmean(run.tokens for run in own),
            "mean_success": fmean(run.mean for run in own),
            "last_success": fmean(run.last for run in own),
            "curves": {run.seed: run.curve for run in own},
        }
        shared = sorted(set(group) & set(groups.get(CONTROL, {})))
        if name != CONTROL and shared:
            ours, control = [group[seed] for seed in shared], [groups[CONTROL][seed] for seed in shared]
            for what, value in (("rounds", "rounds"), ("tokens", "tokens")):
                share, interval = fewer([getattr(run, value) for run in ours], [getattr(run, value) for run in control])
                found[name][f"fewer_{what}"] = {"share": share, "interval": interval, "seeds": shared}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("percent", type=float)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = {"percent": given.percent, "methods": compared(measured(run, given.percent / 100) for run in given.runs)}
    print(json.dumps(found, indent=2))
    if given.output:
        given.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
