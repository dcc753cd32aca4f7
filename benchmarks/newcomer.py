"""A site that joins late, on its first day and after a few rounds, beside what it would have without the others.

python benchmarks/newcomer.py --joined runs/newcomer_? --alone runs/alone20_? --never runs/stranger_? \
    --output docs/results/newcomer.json

joined   federations in which a site joins late (`joins`); `fedse eval RUN --round JOINS-1 --world WORLD --split test` played
         its first day, with the adapter that it finds
alone    runs of that site by itself, with demonstrations of its own
never    the same federations without anybody who learns in its world

Runs are named NAME_SEED. Success is greedy, on the test tasks, which are the same in all runs. Differences are paired by
seed and task, with a 95 % interval over seeds and tasks drawn again and an exact sign-flip test over tasks that takes the
seeds as given, Holm-corrected; beside them Student's interval over the seeds. A random policy has no tasks to pair.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from unpaired import student

from fedse.evaluation.paired import difference, holm
from fedse.experience.journal import Journal
from fedse.experiments.options import load_experiment
from fedse.types import Outcome

Solved = dict[int, dict[str, bool]]
"""By seed: whether each task was solved."""


class Latecomer:
    """The site of a federation that joins last, and its world."""

    def __init__(self, run: Path) -> None:
        experiment = load_experiment(run / "experiment.yaml")
        self.name, site = max(experiment.clients.items(), key=lambda item: item[1].joins)
        if site.joins < 2:
            raise SystemExit(f"{run.name}: nobody joins late.")
        self.world = site.worlds[0].name
        self.first_day = f"test-{site.joins - 1:04d}-{self.world}"


def solved(runs: Sequence[Path], site: str, played: str | None = None) -> Solved:
    """In the test named `played`, else in the one after the last round."""
    found: Solved = {}
    for run in runs:
        name = played or f"test-{load_experiment(run / 'experiment.yaml').rounds:04d}"
        attempts = list(Journal(run / "clients" / site / "episodes").read(name))
        if not attempts:
            raise SystemExit(f"{run.name} has no episodes {name} of {site}.")
        found[seed_of(run)] = {item.task: item.outcome is Outcome.SUCCESS for item in attempts}
    return found


def seed_of(run: Path) -> int:
    return int(run.name.rpartition("_")[2])


def shares(found: Solved) -> dict[str, float]:
    return {str(seed): round(100 * fmean(own.values()), 1) for seed, own in sorted(found.items())}


def paired(ours: Solved, theirs: Solved) -> tuple[dict[str, Any], float]:
    """In points over the seeds that both have, and the p-value."""
    seeds = sorted(ours.keys() & theirs.keys())
    tasks = sorted(set.intersection(*(set(side[seed]) for side in (ours, theirs) for seed in seeds)))
    arrays = [
        {"world": np.array([[float(side[seed][task]) for task in tasks] for seed in seeds])} for side in (ours, theirs)
    ]
    found = difference(arrays[0], arrays[1], seeds)
    apart = [100 * found.by_seed[seed] for seed in seeds]
    bounds = student(apart)
    return {
        "difference": round(100 * found.macro, 1),
        "interval": [round(100 * bound, 1) for bound in found.macro_interval],
        "t_interval": bounds and [round(bound, 1) for bound in bounds],
        "by_seed": {str(seed): round(value, 1) for seed, value in zip(seeds, apart, strict=True)},
        "tasks": len(tasks),
    }, found.p


def above_chance(found: Solved, floor: float) -> dict[str, Any]:
    apart = [100 * (fmean(found[seed].values()) - floor) for seed in sorted(found)]
    bounds = student(apart)
    return {"difference": round(fmean(apart), 1), "t_interval": bounds and [round(bound, 1) for bound in bounds]}


def floor_of(run: Path, site: str) -> float:
    """What a random policy solves, as the run's last evaluation tells it."""
    last = load_experiment(run / "experiment.yaml").rounds
    rows = json.loads((run / "evaluations" / f"test-{last:04d}.json").read_text())["worlds"]
    return next(float(row["floor"]) for row in rows if row["client"] == site)


def compared(joined: Sequence[Path], alone: Sequence[Path], never: Sequence[Path]) -> dict[str, Any]:
    late = Latecomer(joined[0])
    arms: Mapping[str, Solved] = {
        "first day": solved(joined, late.name, late.first_day),
        "after its rounds": solved(joined, late.name),
        "alone": solved(alone, late.name),
        **({"never saw its world": solved(never, late.name)} if never else {}),
    }
    pairs = [
        (ours, theirs)
        for ours in ("first day", "after its rounds")
        for theirs in ("alone", "never saw its world")
        if theirs in arms
    ]
    told = [paired(arms[ours], arms[theirs]) for ours, theirs in pairs]
    corrected = holm([p for _, p in told])
    floor = floor_of(joined[0], late.name)
    return {
        "site": late.name,
        "world": late.world,
        "random": round(100 * floor, 1),
        "success": {name: shares(found) for name, found in arms.items()},
        "above_random": {name: above_chance(arms[name], floor) for name in ("first day", "after its rounds")},
        "differences": {
            f"{ours}, {theirs}": own | {"p_holm": float(f"{p:.2g}")}
            for (ours, theirs), (own, _), p in zip(pairs, told, corrected, strict=True)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--joined", nargs="+", type=Path, required=True)
    parser.add_argument("--alone", nargs="+", type=Path, required=True)
    parser.add_argument("--never", nargs="+", type=Path, default=[])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = compared(options.joined, options.alone, options.never)
    text = json.dumps(found, indent=1)
    if options.output:
        options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
