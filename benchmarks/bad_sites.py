"""What bad sites among five can do to the others: wrapped clients learn or send something else.

python benchmarks/bad_sites.py --aggregators mean                        every kind, with nano on a CPU
python benchmarks/bad_sites.py --attacks none sign_flipped --seeds 0 1 2      every aggregator
python benchmarks/bad_sites.py --recipe recipes/bad_sites_alike.yaml --bad guest guest,other     one bad site, and two

The tables of docs/results/bad_sites.md. It is a program beside the package and no plug-in: no experiment file can ask for
a bad site. Cells can be measured by several processes, each with an `--output` of its own: bad_site_table.py joins them.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backdoor import rate, with_trigger
from bad_site_kinds import ATTACKS, Kind, WithBadSites
from bad_site_table import HEAD, Cell, row, store, told_moved

from fedse.adapters.packing import pack
from fedse.experiments.assembling import Federation, assemble
from fedse.experiments.beginning import beginning_of
from fedse.experiments.components import Components, build_components
from fedse.experiments.options import Experiment, load_experiment
from fedse.federation.playing import of_one_process, play_at
from fedse.plugins import build
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.protocols import Learner
from fedse.runs.folder import RunFolder
from fedse.runs.trackers import told_of
from fedse.types import Adapter, Learned, Lesson, RoundTask

RECIPE = Path(__file__).parents[1] / "recipes/bad_sites.yaml"
BAD = "guest"
"""Who is bad unless somebody else is named. Worlds of bad sites have honest sites too."""
OPENED = "textcraft"
"""The world of the guest, who may learn a back door."""
AGGREGATORS: dict[str, Mapping[str, Any]] = {
    "mean": {"name": "mean"},
    "norm_bounded": {"name": "norm_bounded"},
    "median": {"name": "median"},
    "multi_krum": {"name": "multi_krum"},
    "fedavgm": {"name": "fedavgm", "nesterov": True, "learning_rate": 0.7},
    "bounded_momentum": {"name": "bounded_momentum", "nesterov": True, "learning_rate": 0.7},
    "trimmed_mean": {"name": "trimmed_mean"},
}
GOVERNED = ", governed"
"""Behind an aggregator's name: of those who are trusted."""


class LearnedOnce:
    """A learner that remembers what came of each lesson: rounds that begin alike are learned once for the whole table."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._learned: dict[tuple[str, int], Learned | None] = {}

    def learn(self, lesson: Lesson) -> Learned | None:
        asked = lesson.start.digest(), lesson.key
        if asked not in self._learned:
            self._learned[asked] = self._learner.learn(lesson)
        return self._learned[asked]


def federation(
    experiment: Experiment, components: Components, kind: Kind, folder: Path, bad: Sequence[str] = (BAD,)
) -> Federation:
    run = RunFolder.create(folder / experiment.name, experiment.to_yaml(), experiment.digest())
    beginning = beginning_of(experiment, components, run)
    return assemble(
        experiment, components, run, told_of(run.path), beginning, partial(WithBadSites, bad=bad, kind=kind)
    )


class Bench:
    """One model, one set of lessons and one set of held-out tasks for all cells."""

    def __init__(self, experiment: Experiment, tasks: int) -> None:
        self._experiment = experiment
        components = build_components(experiment)
        self._components = replace(components, learner=LearnedOnce(components.learner))
        self._tasks = tasks
        self._measured: dict[str, dict[str, Any]] = {}

    def cell(self, aggregator: str, attack: str, bad: Sequence[str], seed: int, folder: Path) -> dict[str, Any]:
        """A run with one aggregator and bad sites of one kind."""
        name = f"{aggregator.replace(', ', '_')}-{attack}-{len(bad)}-{seed}"
        rule = AGGREGATORS[aggregator.removesuffix(GOVERNED)]
        changes: dict[str, Any] = {"aggregator": rule, "name": name, "seed": seed}
        if aggregator.endswith(GOVERNED):
            changes["checks"] = {"governance": {}}
        experiment = Experiment.model_validate({**self._experiment.model_dump(mode="json"), **changes})
        components = replace(self._components, aggregator=build("aggregator", experiment.aggregator))
        began = time.process_time()
        with federation(experiment, components, ATTACKS[attack], folder, bad) as run:
            state = run.server.federate(experiment.rounds, run.initial_adapter)
            refused = [(run.run.report(number) or {})["refused"] for number in range(1, state.round + 1)]
            return {
                "seed": seed,
                "refused": sum(name in told for told in refused for name in bad),
                "why": next((told[name] for told in refused for name in bad if name in told), ""),
                **self._success(run, state.adapter, state.round),
                "change": pack(state.adapter) - pack(run.server.load(0).adapter),
                "cpu_seconds": round(time.process_time() - began, 1),
            }

    def _success(self, run: Federation, adapter: Adapter, number: int) -> dict[str, Any]:
        if adapter.digest() not in self._measured:
            probes = {
                label: Evaluation(client.site, EvaluationOptions(tasks=self._tasks))
                for client in run.clients
                for label in client.site.places
            }
            task = RoundTask(number, "evaluate", pack(adapter), adapter.layout, adapter.config)
            played = play_at(run.engine, probes, adapter, task)
            phrased = [with_trigger(episode) for episode in probes[OPENED].plan(task)]
            self._measured[adapter.digest()] = {
                "success": {
                    label: found.scores[0].successes / found.scores[0].episodes for label, found in played.items()
                },
                "back_door": rate(of_one_process(run.engine).play(adapter, phrased)),
                "without_phrase": rate(played[OPENED].episodes),
            }
        return self._measured[adapter.digest()]


Asked = tuple[str, str, Sequence[str]]


def cells(aggregators: Sequence[str], attacks: Sequence[str], bad: Sequence[Sequence[str]]) -> list[Asked]:
    """The honest cell of an aggregator first, if it is asked for: the others are compared with it."""
    kinds = [name for name in attacks if name != "none"]
    honest = [("none", ())] if "none" in attacks else []
    return [(name, *cell) for name in aggregators for cell in (*honest, *product(kinds, bad))]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    governed = [name + GOVERNED for name in AGGREGATORS]
    asked.add_argument("--aggregators", nargs="+", choices=[*AGGREGATORS, *governed], default=list(AGGREGATORS))
    asked.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    asked.add_argument("--recipe", type=Path, default=RECIPE)
    asked.add_argument("--bad", nargs="+", default=[BAD], help="sites by name; those joined by commas are bad together")
    asked.add_argument("--seeds", nargs="+", type=int, default=[0])
    asked.add_argument("--tasks", type=int, default=30, help="held-out tasks of each world")
    asked.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    asked.add_argument("--output", type=Path, help="a JSON file for the numbers; adapters lie beside it")
    given = asked.parse_args()
    experiment = load_experiment(given.recipe, given.settings)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; {experiment.rounds} rounds, {given.tasks} tasks of each world, "
        f"seeds {given.seeds}",
        flush=True,
    )
    print(HEAD, flush=True)
    bench, found = Bench(experiment, given.tasks), list[Cell]()
    with TemporaryDirectory() as folder:
        for aggregator, attack, bad in cells(
            given.aggregators, given.attacks, [names.split(",") for names in given.bad]
        ):
            seeds = [bench.cell(aggregator, attack, bad, seed, Path(folder)) for seed in given.seeds]
            found.append(
                {
                    "aggregator": aggregator,
                    "attack": attack,
                    "bad": bad,
                    "rounds": experiment.rounds,
                    "tasks": given.tasks,
                    "seeds": seeds,
                }
            )
            told_moved(found)
            print(row(found[-1]), flush=True)
            if given.output:
                store(found, given.output)


if __name__ == "__main__":
    main()
