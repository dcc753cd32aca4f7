"""Arms side by side from the counts of their evaluations alone, where what was played is not at hand.

python benchmarks/unpaired.py runs/s10_sec-s[12] runs/s10_federated_sec-s[12] --control s10_sec --output s10_sec.json
python benchmarks/unpaired.py docs/results/sharing_regimes.json/skin_{nest,local4}_s{1,2,3} --control skin_local4

`fedse compare` pairs runs task by task and needs the episodes; this needs `evaluations/` only, as a hub has it, or what
`benchmarks/records.py` kept of a run, FILE/NAME. Its intervals are wider, as two runs no longer share the luck of the tasks.
An arm is what is left of a run's name without `-s` or `_s` and its seed. Sites of one world play the same tasks, so their
mean counts as often as there are tasks, not sites.

difference    mean over the seeds that both arms have of the difference in macro success
interval      95 %: seeds drawn anew and, within a run and a world, successes from a binomial; percentiles of 10,000 draws
t interval    95 %, Student's t over the differences by seed; needs two seeds or more
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedse.evaluation.paired import Array, student
from fedse.runs.reading import RunView

DRAWS = 10_000
Counts = dict[str, tuple[float, int]]
"""By world: the share of successes, and of how many tasks."""


def counts_of(rows: Sequence[Mapping[str, Any]]) -> Counts:
    """Sites of one world as one.

    >>> row = {"world": "maze", "episodes": 200}
    >>> counts_of([{**row, "success": 0.2}, {**row, "success": 0.4}])["maze"]
    (0.3, 200)
    """
    by_world = defaultdict(list)
    for row in rows:
        by_world[row["world"]].append(row)
    return {
        world: (round(fmean(row["success"] for row in sites), 12), min(row["episodes"] for row in sites))
        for world, sites in sorted(by_world.items())
    }


def of_run(path: Path) -> Counts:
    view = RunView.existing(path)
    evaluation = view.evaluation("test", view.last_round() or 0)
    return counts_of(evaluation["worlds"]) if evaluation else {}


def of_record(path: Path) -> Counts:
    kept = json.loads(path.parent.read_text())["runs"]
    if path.name not in kept:
        raise SystemExit(f"{path.parent} has no record of {path.name}; it has {', '.join(kept)}.")
    test, worlds = kept[path.name]["test_after_the_last_round"], kept[path.name]["worlds"]
    tasks = test["episodes_per_world"]
    return counts_of(
        [{"world": worlds[site], "episodes": tasks, "success": won / tasks} for site, won in test["successes"].items()]
    )


def macro(counts: Counts) -> float:
    return fmean(share for share, _ in counts.values())


def drawn(counts: Counts, source: np.random.Generator) -> Array:
    """Macro success, had the same run met other tasks."""
    found: Array = np.mean([source.binomial(tasks, share, DRAWS) / tasks for share, tasks in counts.values()], axis=0)
    return found


def difference(ours: Mapping[int, Counts], theirs: Mapping[int, Counts]) -> dict[str, Any]:
    """Ours minus theirs.

    >>> same = {1: {"maze": (0.5, 200)}, 2: {"maze": (0.4, 200)}}
    >>> found = difference(same, same)
    >>> found["difference"], found["interval"][0] < 0 < found["interval"][1]
    (0.0, True)
    """
    seeds = sorted(ours.keys() & theirs.keys())
    source = np.random.default_rng(0)
    by_seed = [macro(ours[seed]) - macro(theirs[seed]) for seed in seeds]
    luck = np.array([drawn(ours[seed], source) - drawn(theirs[seed], source) for seed in seeds])
    chosen = source.integers(len(seeds), size=(len(seeds), DRAWS))
    low, high = np.percentile(np.take_along_axis(luck, chosen, axis=0).mean(axis=0), [2.5, 97.5])
    found = {"seeds": seeds, "difference": fmean(by_seed), "by_seed": by_seed, "interval": [float(low), float(high)]}
    if (bounds := student(by_seed)) is not None:
        found["t_interval"] = list(bounds)
    return found


def gathered(paths: Sequence[Path], control: str) -> dict[str, Any]:
    arms: dict[str, dict[int, Counts]] = defaultdict(dict)
    for path in paths:
        named = re.fullmatch(r"(.+)[-_]s(\d+)", path.name)
        counts = of_record(path) if path.parent.is_file() else of_run(path)
        if named is None or not counts:
            raise SystemExit(f"{path}: wants a name such as imitation-s1, and a test evaluation of its last round.")
        if int(named[2]) in arms[named[1]]:
            raise SystemExit(f"{path}: a run of {named[1]} with seed {named[2]} was given already.")
        arms[named[1]][int(named[2])] = counts
    if control not in arms:
        raise SystemExit(f"--control {control}: no run of it is given. Given: {', '.join(sorted(arms))}.")
    worlds = list(next(iter(arms[control].values())))
    return {
        "control": control,
        "arms": {
            arm: {
                "macro": fmean(macro(counts) for counts in by_seed.values()),
                "by_seed": {seed: macro(counts) for seed, counts in sorted(by_seed.items())},
                "worlds": {world: fmean(counts[world][0] for counts in by_seed.values()) for world in worlds},
                "tasks": {world: counts[world][1] for counts in by_seed.values() for world in worlds},
            }
            for arm, by_seed in sorted(arms.items())
        },
        "against_control": {
            arm: difference(by_seed, arms[control])
            for arm, by_seed in sorted(arms.items())
            if arm != control and by_seed.keys() & arms[control].keys()
        },
    }


def table(found: Mapping[str, Any]) -> str:
    def points(value: float) -> str:
        return f"{100 * value:.1f}"

    worlds = list(found["arms"][found["control"]]["worlds"])
    lines = [
        f"| arm | {' | '.join(worlds)} | macro | by seed | against {found['control']} | t over seeds |",
        f"| --- | {'---: | ' * (len(worlds) + 1)}--- | --- | --- |",
    ]
    for arm, row in found["arms"].items():
        cells = [points(row["worlds"][world]) for world in worlds] + [points(row["macro"])]
        told = found["against_control"].get(arm)
        bounds = " to ".join(map(points, told["interval"])) if told else ""
        t = " to ".join(map(points, told["t_interval"])) if told and "t_interval" in told else ""
        against = f"{100 * told['difference']:+.1f} ({bounds}), seeds {told['seeds']}" if told else ""
        lines.append(
            f"| {arm} | {' | '.join(cells)} | {', '.join(map(points, row['by_seed'].values()))} | {against} | {t} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--control", required=True, help="the arm that the others are compared with")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = gathered(given.runs, given.control)
    print(table(found))
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
