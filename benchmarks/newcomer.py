"""A site that joins late, on its first day and after a few rounds, beside what it would have without the others.

python benchmarks/newcomer.py --joined runs/newcomer_? --alone runs/alone20_? --never runs/stranger_? \
    --output docs/results/newcomer.json

joined   federations in which a site joins late (`joins`); `fedse eval RUN --round JOINS-1 --world WORLD --split test` played
         its first day, with the adapter that it finds
alone    runs of that site by itself, with demonstrations of its own
never    the same federations without anybody who learns in its world

Runs are named NAME_SEED. Success is greedy, on the test tasks, which are the same in all runs; episodes that ended in an
error are left out. Differences are paired by seed and task, with a 95 % interval over seeds and tasks drawn again and an
exact sign-flip test over tasks that takes the seeds as given, Holm-corrected; beside them Student's interval over the seeds.
The floor of a random policy is taken as exact. Of a run whose episodes are not at hand only the numbers are told (`runs`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedse.evaluation.paired import Difference, difference, holm, student
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
    """In the test named `played`, else in the one after the last round; runs without its episodes are left out."""
    found: Solved = {}
    for run in runs:
        attempts = list(Journal(run / "clients" / site / "episodes").read(played or f"test-{_last(run):04d}"))
        if not attempts:
            continue
        if (seed := _seed(run)) in found:
            raise SystemExit(f"{run.name}: another run has seed {seed} too.")
        found[seed] = {
            item.task: item.outcome is Outcome.SUCCESS for item in attempts if item.outcome is not Outcome.ERROR
        }
    if not found:
        raise SystemExit(
            f"{', '.join(run.name for run in runs)}: no episodes of {site} in {played or 'the last test'}."
        )
    return found


def _seed(run: Path) -> int:
    return int(run.name.rpartition("_")[2])


def _last(run: Path) -> int:
    return load_experiment(run / "experiment.yaml").rounds


def shares(found: Solved) -> dict[str, float]:
    return {str(seed): round(100 * fmean(own.values()), 1) for seed, own in sorted(found.items())}


def paired(ours: Solved, theirs: Solved) -> tuple[dict[str, Any], float]:
    """In points over the seeds that both have, and the p-value."""
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise SystemExit(f"no seed in common: {sorted(ours)} and {sorted(theirs)}.")
    tasks = sorted(set.intersection(*(set(side[seed]) for side in (ours, theirs) for seed in seeds)))
    arrays = [np.array([[float(side[seed][task]) for task in tasks] for seed in seeds]) for side in (ours, theirs)]
    found = difference({"world": arrays[0]}, {"world": arrays[1]}, seeds)
    return {**_in_points(found), "tasks": len(tasks)}, found.p


def above_chance(found: Solved, floor: float) -> dict[str, Any]:
    seeds = sorted(found)
    tasks = sorted(set.intersection(*(set(own) for own in found.values())))
    ours = np.array([[float(found[seed][task]) for task in tasks] for seed in seeds])
    return _in_points(difference({"world": ours}, {"world": np.full_like(ours, floor)}, seeds))


def _in_points(found: Difference) -> dict[str, Any]:
    apart = {str(seed): 100 * value for seed, value in found.by_seed.items()}
    bounds = student(list(apart.values()))
    return {
        "difference": round(100 * found.macro, 1),
        "interval": [round(100 * bound, 1) for bound in found.macro_interval],
        "t_interval": bounds and [round(bound, 1) for bound in bounds],
        "by_seed": {seed: round(value, 1) for seed, value in apart.items()},
    }


def evaluated(run: Path, site: str) -> Mapping[str, Any]:
    """The site's row of the run's last test."""
    rows = json.loads((run / "evaluations" / f"test-{_last(run):04d}.json").read_text())["worlds"]
    return next(row for row in rows if row["client"] == site)


def numbers(run: Path, site: str) -> dict[str, Any]:
    """What a run's last test and its reports tell, without episodes."""
    row = evaluated(run, site)
    reports = [json.loads(path.read_text())["clients"] for path in sorted(run.glob("rounds/*/report.json"))]
    own = [clients[site] for clients in reports if site in clients]
    return {
        "successes": row["successes"],
        "episodes": row["episodes"],
        "invalid": round(row["invalid"], 3),
        "found_by_round": [entry["counts"].get("successes", 0) for entry in own],
        "learned_tokens_of_the_site": sum(entry["metrics"].get("tokens", 0) for entry in own),
        "learned_tokens": sum(entry["metrics"].get("tokens", 0) for clients in reports for entry in clients.values()),
        "sampled_tokens": sum(
            entry["counts"].get("agent_tokens", 0) for clients in reports for entry in clients.values()
        ),
        "bytes": sum(entry.get("bytes", 0) for clients in reports for entry in clients.values()),
    }


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
    floor = float(evaluated(joined[0], late.name)["floor"])
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
        "runs": {run.name: numbers(run, late.name) for run in (*joined, *alone, *never)},
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
