"""What privacy costs, and what it keeps from an attack: success and the membership audit's AUC against epsilon.

python benchmarks/epsilon.py gather RUN... --output docs/results/epsilon.json     runs that were audited (fedse audit RUN)
python benchmarks/epsilon.py table docs/results/epsilon.json                      mean over seeds (lowest to highest)
python benchmarks/epsilon.py pairs docs/results/epsilon_smollm2.json              how far apart two runs of a seed are
python benchmarks/epsilon.py draw docs/results/epsilon*.json --picture docs/pictures/epsilon.png     a row for each model
python benchmarks/epsilon.py best RUN...                   what the best of these runs has and others have not, as settings

Runs of a kind differ by their seed alone; `kind` is the recipe's number of demonstrations per site. Success is that of the
test where a run has one, else of its validation tasks after the last round. A run of no rounds is how it was before, and one
whose adapter others begin with is how those were: a thin line. What a random policy solves is a dotted one, where the run's
evaluation tells it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from scipy.stats import fisher_exact

from fedse.evaluation.paired import sign_flip
from fedse.experiments.options import load_experiment

Row = dict[str, Any]

HUB, CONTROL = ("hub, single update", "loss"), ("nobody (control)", "loss")
READER = ("reader, final adapter", "loss")
NO_BOUND = 1000.0
"""An epsilon from which on nobody would speak of a bound."""
COLOURS = {"maze": "#dc6900", "textcraft": "#3366cc", "webshop": "#2e8b57"}
TITLES = {"nano": "nano", "smollm2": "SmolLM2-135M"}


def gathered(run: Path) -> Row:
    experiment = load_experiment(run / "experiment.yaml")
    number = experiment.rounds
    told: list[float | None] = [0.0]
    if number:
        report = json.loads((run / "rounds" / f"{number:04d}" / "report.json").read_text())
        told = [client["metrics"].get("epsilon") for client in report["clients"].values()]
    split = "test" if (run / "evaluations" / f"test-{number:04d}.json").exists() else "validation"
    played = json.loads((run / "evaluations" / f"{split}-{number:04d}.json").read_text())
    return {
        "run": run.name,
        "model": experiment.model.name,
        "seed": experiment.seed,
        "demonstrations": experiment.start.options["tasks"],
        "rounds": number,
        "learner": experiment.learner.name,
        "learning_rate": experiment.learner.options.get("learning_rate"),
        "begins_with": _maker(experiment.begins_with),
        "noise_multiplier": experiment.learner.options.get("noise_multiplier"),
        "epsilon": max(each for each in told if each is not None) if None not in told else None,
        "split": split,
        "tasks": {row["world"]: row["episodes"] for row in played["worlds"]},
        "success": {row["world"]: row["success"] for row in played["worlds"]},
        "macro": played["macro"],
        "random": {row["world"]: row["floor"] for row in played["worlds"]},
        "invalid": {row["world"]: row["invalid"] for row in played["worlds"]},
        "audit": [
            {"world": world["world"], "members": world["members"], "others": world["others"], **row}
            for path in sorted((run / "evaluations").glob(f"audit-{number:04d}-*.json"))
            for world in json.loads(path.read_text())["worlds"]
            for row in world["rows"]
        ],
    }


def _maker(adapter: Path | None) -> str | None:
    """Of RUN/rounds/ROUND/adapter the run."""
    return adapter.parents[2].name if adapter else None


def settings(rows: Sequence[Row]) -> list[list[Row]]:
    """Runs that differ by their seed alone, the least epsilon first and those without noise last."""

    def kind(row: Row) -> tuple[Any, ...]:
        return (
            row["demonstrations"],
            row["learner"] == "imitation",
            row["epsilon"] or 0.0,
            row["noise_multiplier"] or 0.0,
            row.get("learning_rate") or 0.0,
        )

    kinds = sorted({kind(row) for row in rows})
    return [sorted((row for row in rows if kind(row) == one), key=lambda row: row["seed"]) for one in kinds]


def aucs(row: Row, world: str, attack: tuple[str, str]) -> list[float]:
    """None where the control tells members from others: nothing may be read from the other rows then."""
    found = {(each["seat"], each["attack"]): each for each in row["audit"] if each["world"] == world}
    if not found or not found[CONTROL]["auc_interval"][0] <= 0.5 <= found[CONTROL]["auc_interval"][1]:
        return []
    return [found[attack]["auc"]]


def best(runs: Sequence[Path]) -> list[str]:
    """Of the run with the highest success: the settings in which the runs differ, name and seed aside."""
    finished = {run: gathered(run) for run in runs if any((run / "evaluations").glob("validation-*.json"))}
    told = {run: _flat(load_experiment(run / "experiment.yaml").model_dump(mode="json")) for run in finished}
    first = max(finished, key=lambda run: finished[run]["macro"])
    different = [
        key
        for key, value in told[first].items()
        if key not in ("name", "seed") and any(each.get(key) != value for each in told.values())
    ]
    return [f"{key}={json.dumps(told[first][key], separators=(',', ':'))}" for key in different]


def _flat(told: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in told.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return form(values[0])
    return f"{form(mean(values))} ({form(min(values))} to {form(max(values))})"


def table(rows: list[Row]) -> str:
    lines = []
    for same in settings(rows):
        first = same[0]
        worlds = list(first["success"])
        audited = list(dict.fromkeys(found["world"] for row in same for found in row["audit"]))
        lines.append(
            f"| {first['demonstrations']} | {first['learner']} | {first.get('learning_rate')} | "
            f"{first['noise_multiplier']} | {first['epsilon'] and format(first['epsilon'], '.3g')} | "
            f"{[row['seed'] for row in same]} | "
            + " | ".join(
                spread([row["success"][world] for row in same], lambda value: f"{100 * value:.1f}") for world in worlds
            )
            + " | "
            + spread([row["macro"] for row in same], lambda value: f"{100 * value:.1f}")
            + " | "
            + " | ".join(
                f"{world} {seat[0]}: "
                + spread([auc for row in same for auc in aucs(row, world, seat)], lambda value: f"{value:.3f}")
                for world in audited
                for seat in (CONTROL, HUB, READER)
            )
            + " |"
        )
    return "\n".join(lines)


def pairs(rows: list[Row]) -> str:
    """The later run less the earlier, Fisher's p, McNemar's p at most.

    Without episodes nobody knows which tasks both runs solved. Fisher's test takes them for different tasks; McNemar's is
    that of successes which agree as little as their counts allow.
    """
    lines = []
    for one, other in combinations([row for same in settings(rows) for row in same], 2):
        if (one["seed"], one["tasks"]) == (other["seed"], other["tasks"]):
            lines.append(_apart(one, other))
    return "\n".join(lines)


def _apart(one: Row, other: Row) -> str:
    tasks = list(one["tasks"].values())
    solved = [[round(row["success"][world] * many) for world, many in row["tasks"].items()] for row in (other, one)]
    shares = [[hits / many for hits, many in zip(own, tasks, strict=True)] for own in solved]
    variance = sum(share * (1 - share) / many for own in shares for share, many in zip(own, tasks, strict=True))
    apart, reach = mean(shares[0]) - mean(shares[1]), 1.96 * sqrt(variance) / len(tasks)
    fisher = fisher_exact([[sum(own), sum(tasks) - sum(own)] for own in solved]).pvalue
    alone = [
        sum(min(mine, many - theirs) for mine, theirs, many in zip(ours, others, tasks, strict=True))
        for ours, others in (solved, solved[::-1])
    ]
    least_alike = sign_flip([1] * alone[0] + [-1] * alone[1])
    told = f"{100 * apart:+.1f} ({100 * (apart - reach):.1f} to {100 * (apart + reach):.1f})"
    return f"| {other['run']} | {one['run']} | {told} | {fisher:.2g} | {least_alike:.2g} |"


def above_control(row: Row, world: str) -> list[float]:
    """AUC of the hub's attack less that on the adapter before any round: the luck of a choice of members goes."""
    pairs = zip(aucs(row, world, HUB), aucs(row, world, CONTROL), strict=True)
    return [found - control for found, control in pairs]


def draw(rows: list[Row], target: Path) -> None:
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(row["model"] for row in rows))
    figure = Figure(figsize=(10, 3.7 * len(models)), layout="constrained")
    edge = 3 * max((row["epsilon"] for row in rows if row["epsilon"] and row["epsilon"] < NO_BOUND), default=1.0)
    for model, (success, leak) in zip(models, figure.subplots(len(models), 2, squeeze=False), strict=True):
        _draw_model([row for row in rows if row["model"] == model], success, leak, edge)
        success.set(ylabel="success (%)", title=f"{TITLES.get(model, model)}: what is learned", ylim=(0, 100))
        leak.set(ylabel="AUC above that of the control", title=f"{TITLES.get(model, model)}: what a hub can tell")
        leak.set(ylim=(-0.1, 0.35))
        for axis in (success, leak):
            axis.set(xscale="log", xlabel="epsilon (at most)", xlim=(0.7, 1.3 * edge))
            axis.title.set_fontsize(11)
            ticks = [tick for tick in (1, 3, 10, 30, 100, 300) if tick < edge / 3]
            axis.set_xticks([*ticks, edge], [*map(str, ticks), "no\nnoise"])
            axis.minorticks_off()
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8, loc="upper left")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)


def _draw_model(rows: list[Row], success: Any, leak: Any, edge: float) -> None:
    noisy = [row for row in rows if row["learner"] != "imitation" and row["rounds"]]
    numbers = sorted({row["demonstrations"] for row in noisy}, reverse=True)
    for number, solid in zip(numbers, (True, False), strict=False):
        of_number = settings([row for row in noisy if row["demonstrations"] == number])
        at = [min(same[0]["epsilon"], edge) for same in of_number]
        bounded = sum(place < edge for place in at)
        # Two kinds beside each other where they have no epsilon.
        at = [place * (0.92 if solid else 1.08) if place == edge else place for place in at]
        for world in of_number[0][0]["success"]:
            values = [[100 * row["success"][world] for row in same] for same in of_number]
            _curve(success, at, values, bounded, solid, COLOURS[world], f"{world}, {number:,} per site")
        for world in dict.fromkeys(found["world"] for same in of_number for row in same for found in row["audit"]):
            values = [[auc for row in same for auc in above_control(row, world)] for same in of_number]
            _curve(leak, at, values, bounded, solid, COLOURS[world], f"{world}, {number:,} per site")
    leak.axhline(0, color="#888888", linewidth=0.8)
    begun = {row.get("begins_with") for row in noisy}
    _across(success, [row["success"] for row in rows if not row["rounds"]], "-", "before any round")
    _across(success, [row["success"] for row in rows if row["run"] in begun], "-", "adapter that all begin with")
    _across(success, [row["random"] for row in noisy[:1] if "random" in row], ":", "a random policy")


def _across(axis: Any, found: list[Mapping[str, float]], style: str, label: str) -> None:
    for shares in found:
        for world, share in shares.items():
            axis.axhline(100 * share, color=COLOURS[world], linestyle=style, linewidth=0.8, alpha=0.7)
    if found:
        axis.plot([], [], color="#888888", linestyle=style, linewidth=0.8, label=label)


def _curve(
    axis: Any, at: list[float], values: list[list[float]], bounded: int, solid: bool, colour: str, label: str
) -> None:
    """The mean over seeds, and every seed as a dot; nothing was measured between the last epsilon and no noise."""
    face = colour if solid else "white"
    line = [(place, mean(each)) for place, each in zip(at[:bounded], values, strict=False) if each]
    axis.plot(*zip(*line, strict=True), linestyle="-" if solid else ":", color=colour, label=label)
    for place, each in zip(at, values, strict=True):
        axis.plot(
            [place] * len(each),
            each,
            linestyle="",
            marker="o",
            markersize=4,
            color=colour,
            markerfacecolor=face,
            clip_on=False,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gather", "table", "pairs", "draw", "best"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("--picture", type=Path, help="a PNG file")
    given = parser.parse_args()
    if given.what == "best":
        print(*(f"--set {setting}" for setting in best(given.paths)))
        return
    if given.what == "gather":
        found = [row for same in settings([gathered(run) for run in given.paths]) for row in same]
        lines = ",\n ".join(map(json.dumps, found))
        given.output.write_text(f"[\n {lines}\n]\n")
        return
    rows = [row for path in given.paths for row in json.loads(path.read_text())]
    if given.what in ("table", "pairs"):
        print({"table": table, "pairs": pairs}[given.what](rows))
    else:
        draw(rows, given.picture)


if __name__ == "__main__":
    main()
