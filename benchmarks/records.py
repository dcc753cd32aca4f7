"""What finished runs reached and what they cost, added to a file that is kept when their folders are not.

python benchmarks/records.py docs/results/sharing_regimes.json runs/skin_local4_s2 runs/skin_local4_s3 \
    --recipe recipes/s_skin.yaml --set rounds=12 --set method=local_se --set learner.epochs=4

A record has counts, costs and which of the test tasks were solved, nothing of what was played. `benchmarks/paired.py` and
`benchmarks/unpaired.py` read it as FILE/NAME. The recipe with the file's settings, those given here, and the run's name and
seed has to be the experiment that the run was. All sites were tested on as many tasks; one site that has all worlds is
recorded world by world.

solved    by world, a figure for each test task, 1 where it was solved, in the order of the tasks' names
tasks     by world, its settings and a part of the SHA-256 of these names: where both are alike, tasks can be paired
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedse.experiments.measuring import read_runs
from fedse.experiments.options import load_experiment
from fedse.runs.reading import RunView
from fedse.storage import atomic


def recorded(run: Path, recipe: Path, common: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    view = RunView.existing(run)
    experiment = load_experiment(run / "experiment.yaml")
    own = [f"seed={experiment.seed}", *settings]
    if load_experiment(recipe, [*common, *own, f"name={experiment.name}"]) != experiment:
        raise SystemExit(f"{run}: it is not {recipe} with {', '.join([*common, *own])}.")
    last = experiment.rounds
    test = view.evaluation("test", last)
    if test is None:
        raise SystemExit(f"{run}: it has no test after round {last}.")
    reports = [view.report(number) or {} for number in range(1, last + 1)]
    sites = [site for report in reports for site in report["clients"].values()]
    _, [measured] = read_runs([run], "test")
    if measured.errors:
        raise SystemExit(f"{run}: {measured.errors} of its test episodes ended in an error: play them again.")
    cost = measured.costs[last]
    return {
        "made_with": view.makers(),
        "recipe": str(recipe),
        "settings": own,
        "worlds": dict(zip(labels(test), (row["world"] for row in test["worlds"]), strict=True)),
        "validation_entering_each_round": [tried(report["evaluation"])["macro"] for report in reports],
        "validation_after_the_last_round": tried(view.evaluation("validation", last)),
        "test_after_the_last_round": tried(test),
        "solved": {world: figures(tasks) for world, tasks in measured.worlds.items()},
        "tasks": {
            world: {**measured.settings[f"worlds.{world}"], "tasks": digest(tasks)}
            for world, tasks in measured.worlds.items()
        },
        "explored_agent_tokens": cost.explored_tokens,
        "learned_tokens": cost.learned_tokens,
        "minutes_of_rounds": round(cost.seconds / 60, 1),
        "adapter_megabytes_up": round(sum(site["bytes"] for site in sites) / 1e6),
        "adapter_bytes_up_and_down": cost.bytes,
    }


def figures(tasks: Mapping[str, bool]) -> str:
    """
    >>> figures({"test-1": True, "test-0": False})
    '01'
    """
    return "".join(str(int(tasks[name])) for name in sorted(tasks))


def digest(tasks: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(tasks)).encode()).hexdigest()[:12]


def labels(evaluation: Any) -> list[str]:
    """The names of the rows: their sites, or their worlds where one site has them all, or both.

    >>> maze, wordle = ({"client": "pooled", "world": world} for world in ("maze", "wordle"))
    >>> labels({"worlds": [maze, wordle]})
    ['maze', 'wordle']
    >>> labels({"worlds": [maze, wordle, {"client": "alone", "world": "maze"}]})
    ['pooled: maze', 'pooled: wordle', 'alone: maze']
    """
    for key in ("client", "world"):
        names = [row[key] for row in evaluation["worlds"]]
        if len(set(names)) == len(names):
            return names
    return [f"{row['client']}: {row['world']}" for row in evaluation["worlds"]]


def tried(evaluation: Any) -> dict[str, Any]:
    """Successes by site.

    >>> row = {"client": "maze", "success": 0.25, "successes": 5, "episodes": 20}
    >>> tried({"worlds": [row, {**row, "client": "wordle"}]})
    {'macro': 25.0, 'successes': {'maze': 5, 'wordle': 5}, 'episodes_per_world': 20}
    """
    rows = evaluation["worlds"]
    if len({row["episodes"] for row in rows}) > 1:
        raise SystemExit("Not all sites have as many tasks: a record has one number for all.")
    return {
        "macro": round(100 * sum(row["success"] for row in rows) / len(rows), 1),
        "successes": dict(zip(labels(evaluation), (row["successes"] for row in rows), strict=True)),
        "episodes_per_world": rows[0]["episodes"],
    }


def check_new(file: Path, name: str) -> None:
    if name in content(file)["runs"]:
        raise SystemExit(f"{file} has a record of {name} already.")


def added(file: Path, name: str, record: Mapping[str, Any]) -> None:
    kept = content(file)
    atomic.write_text(file, json.dumps({**kept, "runs": {**kept["runs"], name: record}}, indent=1) + "\n")


def content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"settings": [], "runs": {}}
    if not {"settings", "runs"} <= found.keys():
        raise SystemExit(f"{file}: it has no records of runs: give another file.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    common = content(given.file)["settings"]
    for run in given.runs:
        check_new(given.file, run.name)
        record = recorded(run, given.recipe, common, given.settings)
        added(given.file, run.name, record)
        print(run.name, record["test_after_the_last_round"])


if __name__ == "__main__":
    main()
