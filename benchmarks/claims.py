"""What a modifier of a learning rule claims, beside its control: success, pass@k, entropy, tokens, invalid actions.

python benchmarks/claims.py runs/m_* --control m_base --output docs/results/modifiers.json

Runs are named NAME_sSEED, and those of one name differ by their seed alone. Success is greedy, on the tasks of the test;
what is drawn are the attempts of `probes: [{name: pass_at_k, split: test}]`, where a run has it. Differences are paired by
seed. Of success and pass@k they are paired by task too, with intervals over seeds and tasks and an exact sign-flip test over
tasks, Holm-corrected over the names, as `fedse compare` does it; of the others the interval is Student's over the seeds.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from fedse.evaluation.paired import Array, Difference, difference, holm
from fedse.experience.journal import Journal
from fedse.types import Outcome, Trajectory

ByTask = dict[str, dict[str, bool]]
"""Of each site, whether each task was solved."""
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t for 95 %, by the number of seeds."""
SHARES = ("success", "pass_at_k")
BETTER_AND_WORSE = (("winner_log_ratio", "loser_log_ratio"), ("success_log_ratio", "failure_log_ratio"))
TOLD = ("entropy", "uniform_groups", "solved_groups", "replay_weight", *sum(BETTER_AND_WORSE, ()))
"""What learners report of a lesson, as far as a claim is about it."""


class Run:
    """What one run reached, mean over its sites."""

    def __init__(self, folder: Path) -> None:
        self.seed = int(folder.name.rpartition("_s")[2])
        self.rounds = [json.loads(path.read_text()) for path in sorted(folder.glob("rounds/*/report.json"))]
        last = len(self.rounds)
        self.greedy = _played(folder, f"test-{last:04d}")
        self.drawn = _played(folder, f"probes-test-{last:04d}")

    def by_task(self, quantity: str) -> ByTask:
        """Success of the greedy attempt, or of any of those that were drawn."""
        found: ByTask = {}
        for site, played in (self.greedy if quantity == "success" else self.drawn).items():
            for item in played:
                own = found.setdefault(site, {})
                own[item.task] = own.get(item.task, False) or item.outcome is Outcome.SUCCESS
        return found

    def numbers(self) -> dict[str, float]:
        return {
            **_means("", map(_of_greedy, self.greedy.values())),
            **_means("drawn_", map(_of_drawn, self.drawn.values())),
            "sampled_tokens": self._sum("counts", "agent_tokens"),
            "learned_tokens": self._sum("metrics", "tokens"),
        }

    def told(self) -> dict[str, dict[str, list[float | None]]]:
        """Of each site what the rule measured in each round; None where it did not learn."""
        sites = dict.fromkeys(site for report in self.rounds for site in report["clients"])
        lessons = {site: [_lesson(report, site) for report in self.rounds] for site in sites}
        return {
            site: {name: [lesson.get(name) for lesson in own] for name in TOLD if any(name in item for item in own)}
            for site, own in lessons.items()
        }

    def _sum(self, part: str, name: str) -> float:
        return sum(client[part].get(name, 0) for report in self.rounds for client in report["clients"].values())


def _lesson(report: Mapping[str, Any], site: str) -> Mapping[str, float]:
    told: Mapping[str, float] = report["clients"].get(site, {}).get("metrics", {})
    return told


def moved(runs: Sequence[Run]) -> dict[str, float]:
    """In how many lessons what was better became likelier and what was worse less likely, and by how many nats per
    trajectory, mean over the steps of a lesson. Nothing for rules that tell neither."""
    lessons = [_lesson(report, site) for run in runs for report in run.rounds for site in report["clients"]]
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


def _played(folder: Path, name: str) -> dict[str, list[Trajectory]]:
    sites = sorted(path.parent.parent for path in folder.glob(f"clients/*/episodes/{name}.jsonl"))
    return {site.name: list(Journal(site / "episodes").read(name)) for site in sites}


def _of_greedy(played: Sequence[Trajectory]) -> dict[str, float]:
    won = [item.agent_tokens for item in played if item.outcome is Outcome.SUCCESS]
    return {
        "tokens": fmean(item.agent_tokens for item in played),
        **({"tokens_of_successes": fmean(won)} if won else {}),
        "invalid_actions": sum(item.invalid_actions for item in played) / sum(len(item.steps) for item in played),
    }


def _of_drawn(played: Sequence[Trajectory]) -> dict[str, float]:
    surprise = [-number for item in played for number in item.log_probs]
    groups: dict[str, list[Trajectory]] = {}
    for item in played:
        groups.setdefault(item.task, []).append(item)
    kinds = [len({tuple(step.action for step in item.steps) for item in own}) / len(own) for own in groups.values()]
    return {
        "success": fmean(item.outcome is Outcome.SUCCESS for item in played),
        **({"entropy": fmean(surprise)} if surprise else {}),
        "different": fmean(kinds),
    }


def _means(prefix: str, sites: Iterable[Mapping[str, float]]) -> dict[str, float]:
    told = list(sites)
    names = dict.fromkeys(name for site in told for name in site)
    return {prefix + name: fmean(site[name] for site in told if name in site) for name in names}


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
    return difference(arrays[0], arrays[1], [run.seed for run in ours])


def paired_by_seed(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
    """Of every other quantity: the mean of the differences, and Student's interval where there are several."""
    found: dict[str, Any] = {}
    pairs = [(one.numbers(), other.numbers()) for one, other in zip(ours, theirs, strict=True)]
    for name in pairs[0][0]:
        apart = [one[name] - other[name] for one, other in pairs if name in one and name in other]
        if apart:
            half = T_95[len(apart)] * stdev(apart) / sqrt(len(apart)) if len(apart) in T_95 else None
            bounds = None if half is None else [_short(fmean(apart) - half), _short(fmean(apart) + half)]
            found[name] = {"difference": _short(fmean(apart)), "interval": bounds}
    return found


def gathered(folders: Iterable[Path]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for folder in folders:
        if re.search(r"_s\d+$", folder.name) and next(folder.glob("evaluations/test-*.json"), None):
            found.setdefault(folder.name.rpartition("_s")[0], []).append(Run(folder))
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in found.items()}


def described(runs: Sequence[Run]) -> dict[str, Any]:
    shares = {
        quantity: {
            str(run.seed): {site: _percent(own.values()) for site, own in run.by_task(quantity).items()} for run in runs
        }
        for quantity in SHARES
    }
    return {
        **shares,
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
    tested: list[tuple[str, str, Difference]] = []
    for name, runs in others.items():
        seeds = {run.seed for run in runs} & {run.seed for run in control}
        if not seeds:
            found[name] = {"seeds": []}
            continue
        ours, theirs = ([run for run in group if run.seed in seeds] for group in (runs, control))
        found[name] = {"seeds": sorted(seeds), **paired_by_seed(ours, theirs)}
        tested += [
            (name, quantity, item)
            for quantity in SHARES
            if (item := paired_by_task(ours, theirs, quantity)) is not None
        ]
    for quantity in SHARES:
        own = [(name, item) for name, kind, item in tested if kind == quantity]
        for (name, item), p in zip(own, holm([item.p for _, item in own]), strict=True):
            found[name][quantity] = {
                "difference": _points(item.macro),
                "interval": [_points(bound) for bound in item.macro_interval],
                "p_holm": float(f"{p:.2g}"),
                "by_seed": {str(seed): _points(value) for seed, value in item.by_seed.items()},
                "worlds": {
                    site: {"difference": _points(world.share), "interval": [_points(bound) for bound in world.interval]}
                    for site, world in item.by_world.items()
                },
            }
    return found


def _percent(marks: Iterable[bool]) -> float:
    return round(100 * fmean(marks), 1)


def _points(share: float) -> float:
    return round(100 * share, 1)


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
    print(table(report))
    if given.output:
        given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
