"""What arms of an experiment cost for what they reached, from the records of benchmarks/records.py.

python benchmarks/costs.py docs/results/sharing_five_worlds.json/{s5_local_s{1,2,3},central-s{1,2,3}}

Means over the runs of an arm, which is what is left of a run's name without its seed. Learned tokens per point are those of
all sites, over the points of macro success above `--floor`, which is what the untuned model solves. Minutes are those of the
rounds, with the other runs that shared the card: they compare nothing across files. Megabytes are those of adapters, up and
down; of older records, which have no bytes down, twice those that went up. Nothing is counted for one site that has
everybody's worlds, which has been sent trajectories instead.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

HEAD = (
    "| arm | runs | macro | sampled (million tokens) | learned | learned per point | MB of adapters | minutes |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)
POOLED = "method=centralized_se"


def by_arm(paths: Iterable[Path]) -> dict[str, list[dict[str, Any]]]:
    arms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        named = re.fullmatch(r"(.+)[-_]s\d+", path.name)
        kept = json.loads(path.parent.read_text())["runs"]
        if named is None or path.name not in kept:
            raise SystemExit(f"{path}: wants FILE/NAME-s1 of a record in that file. It has {', '.join(kept)}.")
        arms[named[1]].append(kept[path.name])
    return arms


def macro(test: Mapping[str, Any]) -> float:
    """In per cent, unrounded as a record's own figure is not."""
    return 100 * fmean(test["successes"].values()) / float(test["episodes_per_world"])


def row(arm: str, runs: Sequence[dict[str, Any]], floor: float = 0.0) -> str:
    """
    >>> test = {"successes": {"maze": 80, "wordle": 120}, "episodes_per_world": 200}
    >>> run = {"test_after_the_last_round": test, "explored_agent_tokens": 1500000, "learned_tokens": 30000000}
    >>> row("mean", [{**run, "adapter_megabytes_up": 977, "minutes_of_rounds": 11.3, "settings": []}])
    '| mean | 1 | 50.0 | 1.50 | 30.0 | 0.60 | 1,954 | 11.3 |'
    """

    def mean(key: str) -> float:
        return fmean(run[key] for run in runs)

    reached = fmean(macro(run["test_after_the_last_round"]) for run in runs)
    if any(run["learned_tokens"] is None for run in runs):
        raise SystemExit(f"{arm}: its learner counts no tokens, so nothing can be said for a point.")
    learned = mean("learned_tokens") / 1e6
    pooled = POOLED in runs[0]["settings"]
    megabytes = fmean(run.get("adapter_bytes_up_and_down", 2e6 * run["adapter_megabytes_up"]) / 1e6 for run in runs)
    sent = "trajectories" if pooled else f"{megabytes:,.0f}"
    per_point = f"{learned / (reached - floor):.2f}" if reached > floor else "-"
    return (
        f"| {arm} | {len(runs)} | {reached:.1f} | {mean('explored_agent_tokens') / 1e6:.2f} | {learned:.1f} | {per_point} | "
        f"{sent} | {mean('minutes_of_rounds'):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="FILE/NAME")
    parser.add_argument("--floor", type=float, default=0.0, help="macro success (%%) of the untuned model")
    given = parser.parse_args()
    print("\n".join([HEAD, *(row(arm, runs, given.floor) for arm, runs in by_arm(given.records).items())]))


if __name__ == "__main__":
    main()
