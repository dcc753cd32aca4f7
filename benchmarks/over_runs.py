"""Compares two arms whose runs do not all have the same seeds, or of which only single figures are kept.

python benchmarks/over_runs.py --ours 33.8 docs/results/sharing_paired.json/s5_mean_s{1,2,4} --theirs 60.2 58.1 56.6
python benchmarks/over_runs.py --matched --ours 36.5 42.4 38.7 --theirs 36.0 36.4 35.2

A run is its macro success in per cent, or FILE/NAME of what `benchmarks/records.py` kept of it.

over runs    95 %, Welch's t: takes every run for independent of every other
matched      95 %, Student's t over the differences: the first of ours has the seed of the first of theirs, and so on
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from scipy.stats import ttest_ind

from fedse.evaluation.paired import student


def macro(run: str) -> float:
    """
    >>> macro("33.8")
    33.8
    """
    try:
        return float(run)
    except ValueError:
        path = Path(run)
    if not path.parent.is_file():
        raise SystemExit(f"{run}: neither a number nor FILE/NAME of a record.")
    kept = json.loads(path.parent.read_text())["runs"]
    if path.name not in kept:
        raise SystemExit(f"{path.parent} has no record of {path.name}; it has {', '.join(kept)}.")
    found: float = kept[path.name]["test_after_the_last_round"]["macro"]
    return found


def welch(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """
    >>> [round(bound, 2) for bound in welch([1.0, 2.0, 3.0], [5.0, 6.0, 7.5])]
    [-6.8, -1.54]
    """
    low, high = ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", nargs="+", required=True)
    parser.add_argument("--theirs", nargs="+", required=True)
    parser.add_argument(
        "--matched", action="store_true", help="run by run: ours and theirs have the same seeds in turn"
    )
    given = parser.parse_args()
    ours, theirs = [macro(run) for run in given.ours], [macro(run) for run in given.theirs]
    if given.matched and len(ours) != len(theirs):
        raise SystemExit(f"--matched: {len(ours)} runs of ours and {len(theirs)} of theirs.")
    if min(len(ours), len(theirs)) < 2:
        raise SystemExit("An interval over runs takes two runs or more of each.")
    apart = [one - other for one, other in zip(ours, theirs, strict=False)]
    bounds = student(apart) if given.matched else welch(ours, theirs)
    assert bounds is not None
    print(f"ours {fmean(ours):.1f} ({len(ours)} runs), theirs {fmean(theirs):.1f} ({len(theirs)} runs)")
    print(f"difference {fmean(ours) - fmean(theirs):+.1f} ({bounds[0]:+.1f} to {bounds[1]:+.1f})")
    if given.matched:
        print("by seed", ", ".join(f"{value:+.1f}" for value in apart))


if __name__ == "__main__":
    main()
