"""A whole run in which one site sends something else than what it learned, and what is left for the others.

python benchmarks/hostile_site.py recipes/s_skin.yaml --bad foreign --attack sign_flipped --output hostile.json \
    --set name=flipped_s1 --set seed=1 --set aggregator.name=fedavgm --set aggregator.nesterov=true \
    --set aggregator.learning_rate=0.7 --set 'checks={governance: {}}'
python benchmarks/hostile_site.py recipes/s_skin.yaml --bad foreign --attack nan ...     without it: without_s1
python benchmarks/hostile_site.py recipes/s_skin.yaml --bad foreign --attack none ...    it is honest

python benchmarks/paired.py hostile.json/{flipped,without}_s1 --against without --leave-out "foreign: textcraft"

`bad_sites.py` has every kind of bad site in short runs with a shared cache of lessons; here a recipe is run to its end, with
exploration and its test, and the run's folder is kept. Updates of `nan` are refused in every round, so the others learn by
themselves. `--output` gets the record of `records.py` by the run's name, and in it the mean success of honest sites and in
how many rounds the bad one was left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

from bad_site_kinds import ATTACKS
from bad_sites import federation
from records import added, check_new, recorded

from fedse.experiments.components import build_components
from fedse.experiments.options import load_experiment
from fedse.runs.reading import RunView

Record = dict[str, Any]


def played(recipe: Path, settings: list[str], bad: str, attack: str, runs: Path) -> tuple[str, Record]:
    """The run's name, and what came of it."""
    experiment = load_experiment(recipe, settings)
    if bad not in experiment.clients:
        raise SystemExit(f"{recipe} has no site {bad}: it has {', '.join(experiment.clients)}.")
    if not experiment.evaluation.test_tasks:
        raise SystemExit(f"{recipe}: it has no test; set evaluation.test_tasks.")
    components = build_components(experiment)
    with federation(experiment, components, ATTACKS[attack], runs, [bad]) as run:
        run.finish()
        reports = [run.run.report(number) for number in range(1, experiment.rounds + 1)]
        refused = [report["refused"][bad] for report in reports if report and bad in report["refused"]]
    # The recipe's own name and seed are in every record.
    changed = [setting for setting in settings if not setting.startswith(("name=", "seed="))]
    record = recorded(run.run.path, recipe, [], changed)
    test = RunView.existing(run.run.path).evaluation("test", experiment.rounds)
    assert test is not None
    honest = [row["success"] for row in test["worlds"] if row["client"] != bad]
    return experiment.name, {
        "bad": bad,
        "attack": attack,
        "rounds": experiment.rounds,
        "left_out": len(refused),
        "why": refused[0] if refused else "",
        "honest": round(100 * fmean(honest), 2),
        **record,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("recipe", type=Path)
    asked.add_argument("--bad", required=True, help="the site, by name")
    asked.add_argument("--attack", choices=ATTACKS, default="sign_flipped")
    asked.add_argument("--runs", type=Path, default=Path("runs"))
    asked.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    asked.add_argument("--output", type=Path, help="a JSON file that gets a record of the run beside those it has")
    given = asked.parse_args()
    if given.output:
        check_new(given.output, load_experiment(given.recipe, given.settings).name)
    name, record = played(given.recipe, given.settings, given.bad, given.attack, given.runs)
    if given.output:
        added(given.output, name, record)
    print(
        f"{name}: honest sites {record['honest']} %; {given.bad} ({given.attack}) was left out in {record['left_out']} of "
        f"{record['rounds']} rounds."
    )


if __name__ == "__main__":
    main()
