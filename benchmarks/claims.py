"""What a modifier of a learning rule claims, beside its control: success, pass@k, entropy, tokens, invalid actions.

python benchmarks/claims.py runs/m_* --control m_base --output docs/results/modifiers.json
python benchmarks/claims.py runs/*_s? --control imitation --began runs/fitted_?

Runs are named NAME_sSEED, and those of one name differ by their seed alone. Success is greedy, on the tasks of the test;
what is drawn are the attempts of `probes: [{name: pass_at_k, split: test}]`, where a run has it. Differences are paired by
seed. Of success and pass@k they are paired by task too, with intervals over seeds and tasks and an exact sign-flip test over
tasks, Holm-corrected over the names, as `fedse compare` does it; of the others the interval is Student's over the seeds.
Where runs no longer have the episodes of their tests, success is compared by its counts, as in `unpaired.py`. With `--began`
each run is also compared with the run whose last adapter it began with, found by the adapter's digest.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import unpaired
from mantel_haenszel import mantel_haenszel
from tested_run import BETTER_AND_WORSE, Run, lesson_of, percent, points

from fedse.evaluation.paired import Array, Difference, difference, holm, sign_flip, student

SHARES = ("success", "pass_at_k")


def moved(runs: Sequence[Run]) -> dict[str, float]:
    """In how many lessons what was better became likelier and what was worse less likely, and by how many nats per
    trajectory, mean over the steps of a lesson. Nothing for rules that tell neither."""
    lessons = [lesson_of(report, site) for run in runs for report in run.rounds for site in report["clients"]]
    for better, worse in BETTER_AND_WORSE:
        both = [(lesson[better], lesson[worse]) for lesson in lessons if better in lesson and worse in lesson]
        if both:
            return {
                "lessons": len(both),
                "better_up": sum(up > 0 for up, _ in both),
                "worse_down": sum(down < 0 for _, down in both),
                "both": sum(up > 0 > down for up, down in both),
                "better": _short(fmean(up for up, _ in both)),
                "worse": _short(fmean(down for _, down in both)),
            }
    return {}


def paired_by_task(ours: Sequence[Run], theirs: Sequence[Run], quantity: str) -> Difference | None:
    """Runs of the same seeds, in their order; None where nothing was drawn."""
    both = [[run.by_task(quantity) for run in runs] for runs in (ours, theirs)]
    if not all(found for runs in both for found in runs):
        return None
    common = {
        site: sorted(set.intersection(*(set(found[site]) for runs in both for found in runs))) for site in both[0][0]
    }
    arrays: list[dict[str, Array]] = [
        {
            site: np.array([[float(found[site][task]) for task in tasks] for found in runs])
            for site, tasks in common.items()
        }
        for runs in both
    ]
    return difference(arrays[0], arrays[1], [run.seed for run in ours], common)


def by_counts(pairs: Sequence[tuple[Run, Run]]) -> tuple[dict[str, Any], float]:
    """Success by how many tasks each run solved, and the p-value; the pairs are of different seeds."""
    ours, theirs = ({run.seed: run.counts() for run in runs} for runs in zip(*pairs, strict=True))
    found = unpaired.difference(ours, theirs)
    worlds = list(ours[pairs[0][0].seed])
    alone = {
        world: unpaired.difference(
            *({seed: {world: own[world]} for seed, own in side.items()} for side in (ours, theirs))
        )
        for world in worlds
    }
    told = {
        "difference": points(found["difference"]),
        "interval": _in_points(found["interval"]),
        "t_interval": _in_points(found.get("t_interval")),
        "by_seed": {str(seed): points(value) for seed, value in zip(found["seeds"], found["by_seed"], strict=True)},
        "worlds": {
            world: {"difference": points(own["difference"]), "interval": _in_points(own["interval"])}
            for world, own in alone.items()
        },
        "tasks": "counted",
    }
    return told, _p_of_counts(pairs)


def _p_of_counts(pairs: Iterable[tuple[Run, Run]]) -> float:
    strata = [
        [(share * tasks, tasks) for share, tasks in (run.counts()[world] for run in pair)]
        for pair in pairs
        for world in pair[0].counts()
    ]
    return mantel_haenszel([ours for ours, _ in strata], [theirs for _, theirs in strata])


def paired_by_seed(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
    """Of every other quantity: the mean of the differences, and Student's interval where there are several."""
    found: dict[str, Any] = {}
    pairs = [(one.numbers(), other.numbers()) for one, other in zip(ours, theirs, strict=True)]
    for name in pairs[0][0]:
        apart = [one[name] - other[name] for one, other in pairs if name in one and name in other]
        if apart:
            bounds = student(apart)
            found[name] = {
                "difference": _short(fmean(apart)),
                "interval": None if bounds is None else [_short(bound) for bound in bounds],
            }
    return found


def gathered(folders: Iterable[Path]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for folder in folders:
        if re.search(r"_s\d+$", folder.name) and next(folder.glob("evaluations/test-*.json"), None):
            found.setdefault(folder.name.rpartition("_s")[0], []).append(Run(folder))
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in found.items()}


def described(runs: Sequence[Run]) -> dict[str, Any]:
    drawn = {str(run.seed): run.by_task("pass_at_k") for run in runs}
    return {
        "success": {str(run.seed): run.success() for run in runs},
        "pass_at_k": {
            seed: {site: percent(own.values()) for site, own in by_site.items()} for seed, by_site in drawn.items()
        },
        "numbers": {str(run.seed): {name: _short(value) for name, value in run.numbers().items()} for run in runs},
        "by_round": {
            str(run.seed): {
                site: {
                    name: [value if value is None else _short(value) for value in told] for name, told in own.items()
                }
                for site, own in run.told().items()
            }
            for run in runs
        },
        "moved": moved(runs),
    }


def against(control: Sequence[Run], others: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tested: list[tuple[str, str, dict[str, Any], float]] = []
    for name, runs in others.items():
        seeds = {run.seed for run in runs} & {run.seed for run in control}
        if not seeds:
            found[name] = {"seeds": []}
            continue
        ours, theirs = ([run for run in group if run.seed in seeds] for group in (runs, control))
        found[name] = {"seeds": sorted(seeds), **paired_by_seed(ours, theirs)}
        for quantity in SHARES:
            item = paired_by_task(ours, theirs, quantity)
            if item is not None:
                tested.append((name, quantity, _told(item), item.p))
            elif quantity == "success":
                tested.append((name, quantity, *by_counts(list(zip(ours, theirs, strict=True)))))
    for quantity in SHARES:
        own = [(name, told, p) for name, kind, told, p in tested if kind == quantity]
        for (name, told, _), p in zip(own, holm([p for *_, p in own]), strict=True):
            found[name][quantity] = {**told, "p_holm": _rough(p)}
    return found


def _told(item: Difference) -> dict[str, Any]:
    return {
        "difference": points(item.macro),
        "interval": _in_points(item.macro_interval),
        "t_interval": _in_points(student(list(item.by_seed.values()))),
        "by_seed": {str(seed): points(value) for seed, value in item.by_seed.items()},
        "worlds": {
            site: {"difference": points(world.share), "interval": _in_points(world.interval)}
            for site, world in item.by_world.items()
        },
    }


def against_beginning(runs: Mapping[str, Sequence[Run]], beginnings: Iterable[Run]) -> dict[str, Any]:
    """Every run beside the one with whose last adapter it began: over the seeds by counts, and each alone by its tasks
    where both still have them."""
    known = {run.last: run for run in beginnings if run.last}
    pairs = {name: [(run, known[run.first]) for run in own if run.first in known] for name, own in runs.items()}
    over = {name: by_counts(own) for name, own in pairs.items() if own}
    corrected = holm([p for _, p in over.values()])
    return {
        name: {
            **told,
            "p_holm": _rough(p),
            "p_of_each": {str(run.seed): _p_of_one(run, began) for run, began in pairs[name]},
        }
        for (name, (told, _)), p in zip(over.items(), corrected, strict=True)
    }


def _p_of_one(run: Run, began: Run) -> dict[str, float | str]:
    ours, theirs = run.by_task("success"), began.by_task("success")
    if ours.keys() != theirs.keys():
        ours, theirs = run.by_world(), began.by_world()
    if ours and theirs:
        apart: Counter[str] = Counter()
        for place, own in ours.items():
            # Sites of one world may play the same task.
            apart.update({task: int(own[task]) - int(theirs[place][task]) for task in own})
        return {"p": _rough(sign_flip(list(apart.values()))), "test": "McNemar"}
    return {"p": _rough(_p_of_counts([(run, began)])), "test": "counts"}


def _in_points(bounds: Sequence[float] | None) -> list[float] | None:
    return None if bounds is None else [points(bound) for bound in bounds]


def _rough(p: float) -> float:
    return float(f"{p:.2g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def table(report: Mapping[str, Any]) -> str:
    columns = ("drawn_success", "drawn_entropy", "drawn_different", "tokens", "tokens_of_successes", "invalid_actions")
    costs = ("sampled_tokens", "learned_tokens")
    lines = [
        "| | " + " | ".join((*SHARES, *columns, *costs)) + " |",
        "| --- |" + " ---: |" * len((*SHARES, *columns, *costs)),
    ]
    for name, told in report["runs"].items():
        numbers = list(told["numbers"].values())
        cells = [_mean_of_shares(told[quantity]) for quantity in SHARES]
        cells += [_mean_of(numbers, column, "{:.3g}") for column in columns]
        cells += [_mean_of(numbers, column, "{:,.0f}") for column in costs]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    lines += ["", f"| against `{report['control']}` | " + " | ".join((*SHARES, *columns)) + " |"]
    lines.append("| --- |" + " ---: |" * (len(SHARES) + len(columns)))
    for name, told in report["against_control"].items():
        cells = [_difference(told.get(quantity)) for quantity in (*SHARES, *columns)]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    for name, told in report.get("against_beginning", {}).items():
        each = ", ".join(f"{told['by_seed'][seed]:+.1f} (p = {one['p']})" for seed, one in told["p_of_each"].items())
        lines += ["", f"`{name}` against the adapter that it began with: {_difference(told)}; by seed {each}"]
    for name, told in report["runs"].items():
        if told["moved"]:
            counts = ", ".join(f"{key} {value}" for key, value in told["moved"].items())
            lines += ["", f"`{name}`: {counts}"]
    return "\n".join(lines)


def _mean_of_shares(by_seed: Mapping[str, Mapping[str, float]]) -> str:
    values = [fmean(sites.values()) for sites in by_seed.values() if sites]
    return f"{fmean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})" if values else ""


def _mean_of(numbers: Sequence[Mapping[str, float]], name: str, form: str) -> str:
    values = [own[name] for own in numbers if name in own]
    return form.format(fmean(values)) if values else ""


def _difference(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return ""
    bounds = "" if told["interval"] is None else f" ({told['interval'][0]:.3g} to {told['interval'][1]:.3g})"
    p = f", p = {told['p_holm']:.2g}" if "p_holm" in told else ""
    return f"{told['difference']:+.3g}{bounds}{p}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", nargs="+", type=Path)
    options.add_argument("--control", required=True, help="the name that the others are compared with")
    options.add_argument("--began", nargs="+", type=Path, default=[], help="runs whose last adapters others began with")
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    runs = gathered(given.runs)
    if given.control not in runs:
        raise SystemExit(
            f"--control {given.control}: these runs, with a test behind them, are {', '.join(runs) or 'none'}."
        )
    others = {name: own for name, own in runs.items() if name != given.control}
    report = {
        "control": given.control,
        "runs": {name: described(own) for name, own in runs.items()},
        "against_control": against(runs[given.control], others),
    }
    if given.began:
        report["against_beginning"] = against_beginning(runs, map(Run, given.began))
    print(table(report))
    if given.output:
        given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
