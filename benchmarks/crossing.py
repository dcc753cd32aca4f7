"""From how many demonstrations on an exchange pays, or ceases to: each rule against sites alone, by their number.

python benchmarks/crossing.py runs/sweep_demonstrations/* --control alone --output crossing.json --picture crossing.png

Runs are named RULE_NUMBER-sSEED, and those of one number differ by rule and seed alone; every rule needs the seeds of the
control. With each number the rules are compared with the control as `fedse compare` does it: paired by seed and task, with
an interval over seeds and tasks, p of an exact sign-flip test over tasks, Holm-corrected over the rules of that number. The
t interval is Student's over the seeds. A rule changes sides between two numbers where both intervals exclude zero.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from fedse.errors import BadInput
from fedse.evaluation.comparison import Comparison, Group, compare
from fedse.evaluation.paired import student
from fedse.evaluation.plot import COLOURS
from fedse.experiments.measuring import read_runs

Row = dict[str, Any]


def name_of(run: str) -> tuple[str, int]:
    """Rule and number of demonstrations.

    >>> name_of("private_20-s3")
    ('private', 20)
    """
    named = re.fullmatch(r"(.+)_(\d+)-s\d+", run)
    if named is None:
        raise SystemExit(f"{run}: wants a name such as mean_20-s1, a rule, a number of demonstrations and a seed.")
    return named[1], int(named[2])


def rows_of(number: int, found: Comparison, control: str) -> list[Row]:
    """What each rule reached with so many demonstrations, the control first."""
    groups: dict[str, Group] = {}
    for group in found.groups:
        rule = name_of(group.runs[0].name)[0]
        if rule in groups or len({name_of(run.name)[0] for run in group.runs}) > 1:
            raise SystemExit(f"{number} demonstrations: runs of {rule} differ in more or less than the seed.")
        groups[rule] = group
    for rule, group in groups.items():
        if sorted(group.seeds) != sorted(groups[control].seeds):
            raise SystemExit(
                f"{number} demonstrations: {rule} has the seeds {sorted(group.seeds)}, {control} has "
                f"{sorted(groups[control].seeds)}: leave out what one of them lacks."
            )
    paired = {pair.theirs: pair for pair in found.pairs}
    rows = []
    for rule in sorted(groups, key=lambda rule: (rule != control, rule)):
        group = groups[rule]
        row = {"rule": rule, "demonstrations": number, **_reached(group)}
        if rule != control:
            pair = paired[group.label]
            low, high = pair.found.macro_interval
            by_seed = group.macro_by_seed()
            theirs = groups[control].macro_by_seed()
            apart = [by_seed[seed] - theirs[seed] for seed in sorted(by_seed.keys() & theirs.keys())]
            # The control is the first of each pair.
            row |= {"difference": -pair.found.macro, "interval": [-high, -low], "p": pair.p, "by_seed": apart}
            row["t_interval"] = student(apart)
        rows.append(row)
    return rows


def _reached(group: Group) -> Row:
    last = [run.costs[run.round] for run in group.runs]
    return {
        "macro": group.macro()[0],
        "macro_by_seed": {str(seed): share for seed, share in group.macro_by_seed().items()},
        "worlds": {world: group.world(world)[0] for world in group.successes},
        "learned_tokens": fmean(cost.learned_tokens for cost in last)
        if all(cost.learned_tokens for cost in last)
        else None,
    }


def crossings(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, bool]]:
    """Between which numbers one rule's difference changes its sign, and whether both intervals exclude zero.

    >>> def row(number: int, difference: float, apart: float = 0.01) -> dict[str, Any]:
    ...     interval = [difference - apart, difference + apart]
    ...     return {"demonstrations": number, "difference": difference, "interval": interval}
    >>> crossings([row(0, -0.1), row(5, 0.0), row(20, 0.03), row(80, -0.03, apart=0.05)])
    [(0, 20, True), (20, 80, False)]
    """
    ordered = [row for row in sorted(rows, key=lambda row: row["demonstrations"]) if row["difference"]]
    return [
        (one["demonstrations"], two["demonstrations"], all(_excludes_zero(row["interval"]) for row in (one, two)))
        for one, two in pairwise(ordered)
        if (one["difference"] < 0) != (two["difference"] < 0)
    ]


def _excludes_zero(interval: Sequence[float]) -> bool:
    return interval[0] > 0 or interval[1] < 0


def draw(rows: Sequence[Row], control: str, target: Path) -> None:
    from matplotlib.figure import Figure

    numbers = sorted({row["demonstrations"] for row in rows})
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    reached, apart = figure.subplots(1, 2)
    for place, rule in enumerate(rules):
        own = sorted((row for row in rows if row["rule"] == rule), key=lambda row: row["demonstrations"])
        # Beside each other, so that bars of several rules can be told apart.
        at = [numbers.index(row["demonstrations"]) + 0.08 * (place - 1) for row in own]
        _bars(reached, at, [(row["macro"], *_range(row["macro_by_seed"].values())) for row in own], place, rule)
        if rule != control:
            _bars(apart, at, [(row["difference"], *row["interval"]) for row in own], place, rule)
    apart.axhline(0, color="#888888", linewidth=0.8)
    reached.set(ylabel="success (%)", title="test tasks; bars: from the lowest seed to the highest")
    apart.set(ylabel="points", title=f"above or below `{control}`; bars: 95 % over seeds and tasks")
    for axis in (reached, apart):
        axis.set_xticks(range(len(numbers)), [str(number) for number in numbers])
        axis.set_xlabel("demonstrations per site")
        axis.title.set_fontsize(10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)


def _range(values: Any) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def _bars(axis: Any, at: Sequence[float], values: Sequence[tuple[float, float, float]], place: int, name: str) -> None:
    middle = [100 * value for value, _, _ in values]
    # The least of one seed may be above its mean by a rounding.
    below = [max(0.0, 100 * (value - low)) for value, low, _ in values]
    above = [max(0.0, 100 * (high - value)) for value, _, high in values]
    colour = COLOURS[place % len(COLOURS)]
    axis.errorbar(at, middle, [below, above], marker="os^Dv"[place % 5], color=colour, capsize=2, label=name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--control", default="alone", help="the rule that the others are compared with")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    by_number: dict[int, list[Path]] = defaultdict(list)
    for run in options.runs:
        by_number[name_of(run.name)[1]].append(run)
    rows: list[Row] = []
    notes: dict[str, None] = {}
    for number, runs in sorted(by_number.items()):
        against = [run.name for run in runs if name_of(run.name)[0] == options.control]
        if not against:
            raise SystemExit(f"There is no run named {options.control}_{number}-s...")
        try:
            _, measured = read_runs(runs, "test")
            found = compare(measured, Path(against[0]).name)
        except BadInput as error:
            raise SystemExit(str(error)) from None
        rows += rows_of(number, found, options.control)
        notes |= dict.fromkeys(f"{number} demonstrations: {note}" for note in found.notes)
    for row in rows:
        told = f"{row['demonstrations']:>4} {row['rule']:<12} {100 * row['macro']:5.1f}"
        if "difference" in row:
            low, high = row["interval"]
            told += f"  {100 * row['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}), p = {row['p']:.3f}"
        print(told)
    for rule in dict.fromkeys(row["rule"] for row in rows if "difference" in row):
        for one, two, sure in crossings([row for row in rows if row["rule"] == rule and "difference" in row]):
            print(f"{rule}: {'changes sides' if sure else 'the estimate changes its sign'} between {one} and {two}")
    for note in notes:
        print(note)
    if options.output:
        kept = {"control": options.control, "rows": rows, "notes": list(notes)}
        options.output.write_text(json.dumps(kept, indent=1) + "\n")
    if options.picture:
        draw(rows, options.control, options.picture)


if __name__ == "__main__":
    main()
