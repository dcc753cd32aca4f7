"""What finished runs reached and what they cost, added to a file that is kept when their folders are not.

python benchmarks/records.py docs/results/sharing_regimes.json runs/skin_local4_s2 runs/skin_local4_s3 \
    --recipe recipes/s_skin.yaml --set rounds=12 --set method=local_se --set learner.epochs=4

A record has counts and costs alone, nothing of what was played; `benchmarks/unpaired.py` reads it as FILE/NAME. The recipe
with the file's settings, those given here, and the run's name and seed has to be the experiment that the run was. All sites
were tested on as many tasks; one site that has all worlds is recorded world by world.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedse.experiments.options import load_experiment
from fedse.runs.reading import RunView


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
    return {
        "commit": view.makers()[-1]["commit"],
        "recipe": str(recipe),
        "settings": own,
        "worlds": dict(zip(labels(test), (row["world"] for row in test["worlds"]), strict=True)),
        "validation_entering_each_round": [tried(report["evaluation"])["macro"] for report in reports],
        "validation_after_the_last_round": tried(view.evaluation("validation", last)),
        "test_after_the_last_round": tried(test),
        "explored_agent_tokens": sum(site["counts"]["agent_tokens"] for site in sites),
        "learned_tokens": round(sum(site["metrics"].get("tokens", 0) for site in sites)),
        "minutes_of_rounds": round(sum(report["seconds"] for report in reports) / 60, 1),
        "adapter_megabytes_up": round(sum(site["bytes"] for site in sites) / 1e6),
    }


def labels(evaluation: Any) -> list[str]:
    """The names of the rows: their sites, or their worlds where one site has them all.

    >>> labels({"worlds": [{"client": "pooled", "world": "maze"}, {"client": "pooled", "world": "wordle"}]})
    ['maze', 'wordle']
    """
    for key in ("client", "world"):
        names = [row[key] for row in evaluation["worlds"]]
        if len(set(names)) == len(names):
            return names
    raise SystemExit("Neither sites nor worlds tell the rows of the test apart.")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    kept = json.loads(given.file.read_text()) if given.file.exists() else {"settings": [], "runs": {}}
    for run in given.runs:
        if run.name in kept["runs"]:
            raise SystemExit(f"{given.file} has a record of {run.name} already.")
        kept["runs"][run.name] = recorded(run, given.recipe, kept["settings"], given.settings)
        print(run.name, kept["runs"][run.name]["test_after_the_last_round"])
    given.file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
