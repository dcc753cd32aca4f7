"""What finished runs reached and what they cost, added to a file that is kept when their folders are not.

python benchmarks/records.py docs/results/sharing_regimes.json runs/skin_local4_s2 runs/skin_local4_s3 \
    --recipe recipes/s_skin.yaml --set rounds=12 --set method=local_se --set learner.epochs=4

A record has counts and costs alone, nothing of what was played; `benchmarks/unpaired.py` reads it as FILE/NAME. The recipe
with the file's settings, those given here, and the run's name and seed has to be the experiment that the run was; each of
its sites has one world, and all were tested on as many tasks.
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
    if several := [name for name, site in experiment.clients.items() if len(site.worlds) > 1]:
        raise SystemExit(f"{run}: {several[0]} has several worlds, and a record has one for each site.")
    last = experiment.rounds
    if view.evaluation("test", last) is None:
        raise SystemExit(f"{run}: it has no test after round {last}.")
    reports = [view.report(number) or {} for number in range(1, last + 1)]
    sites = [site for report in reports for site in report["clients"].values()]
    return {
        "commit": view.makers()[-1]["commit"],
        "recipe": str(recipe),
        "settings": own,
        "worlds": {name: site.worlds[0].name for name, site in experiment.clients.items()},
        "validation_entering_each_round": [tried(report["evaluation"])["macro"] for report in reports],
        "validation_after_the_last_round": tried(view.evaluation("validation", last)),
        "test_after_the_last_round": tried(view.evaluation("test", last)),
        "explored_agent_tokens": sum(site["counts"]["agent_tokens"] for site in sites),
        "learned_tokens": round(sum(site["metrics"].get("tokens", 0) for site in sites)),
        "minutes_of_rounds": round(sum(report["seconds"] for report in reports) / 60, 1),
        "adapter_megabytes_up": round(sum(site["bytes"] for site in sites) / 1e6),
    }


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
        "successes": {row["client"]: row["successes"] for row in rows},
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
