"""What bad sites among five can do to the others: wrapped clients learn or send something else.

python benchmarks/bad_sites.py --aggregators mean                        every kind, with nano on a CPU
python benchmarks/bad_sites.py --attacks sign_flipped --seeds 0 1 2      every aggregator
python benchmarks/bad_sites.py --recipe recipes/bad_sites_alike.yaml --bad guest guest,other     one bad site, and two

The tables of docs/security.md. It is a program beside the package and no plug-in: no experiment file can ask for a bad site.

refused    updates of bad sites that the checks which are on by default refuse, of how many
moved      distance of the last adapter from that of the same aggregator with honest sites, as a share of how far that went
success    of held-out tasks in the worlds of the honest sites, greedy; macro, with each world; means over seeds
back door  share of TextCraft's held-out tasks that begin with the chosen action: with the phrase, and without it
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from backdoor import rate, with_trigger
from bad_site_kinds import ATTACKS, Kind, WithBadSites

from fedse.adapters.packing import pack
from fedse.experiments.assembling import Federation, assemble
from fedse.experiments.building import build_components
from fedse.experiments.components import Components
from fedse.experiments.options import Experiment, load_experiment
from fedse.federation.playing import of_one_process, play_at
from fedse.plugins import build
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.protocols import Learner
from fedse.runs.folder import RunFolder
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
    "trimmed_mean": {"name": "trimmed_mean"},
}
GOVERNED = "mean, governed"
"""The mean of those who are trusted."""


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
    return assemble(experiment, components, run, make_engine=partial(WithBadSites, bad=bad, kind=kind))


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
        rule = AGGREGATORS.get(aggregator, AGGREGATORS["mean"])
        changes: dict[str, Any] = {"aggregator": rule, "name": name, "seed": seed}
        if aggregator == GOVERNED:
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
                "adapter": pack(state.adapter).astype(np.float64),
                "initial": pack(run.server.load(0).adapter),
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


def moved(found: Mapping[str, Any], honest: Mapping[str, Any]) -> float:
    away = np.linalg.norm(found["adapter"] - honest["adapter"])
    return float(away / np.linalg.norm(honest["adapter"] - honest["initial"]))


def macro(found: Mapping[str, Any]) -> float:
    return 100 * fmean(found["success"].values())


def row(cell: Mapping[str, Any], rounds: int) -> str:
    seeds = cell["seeds"]
    worlds = " / ".join(f"{100 * fmean(found['success'][name] for found in seeds):.0f}" for name in seeds[0]["success"])
    macros = [macro(found) for found in seeds]
    spread = f" ({min(macros):.0f} to {max(macros):.0f})" if len(seeds) > 1 else ""
    times = sum(found["refused"] for found in seeds)
    refused = f"{times} of {rounds * len(cell['bad']) * len(seeds)}" if times else "-"
    opened, plain = (100 * fmean(found[name] for found in seeds) for name in ("back_door", "without_phrase"))
    away = fmean(found["moved"] for found in seeds)
    who = f"{len(cell['bad'])} {cell['attack']}" if cell["bad"] else "none"
    success = f"{fmean(macros):.1f}{spread} | {worlds}"
    return f"| `{cell['aggregator']}` | {who} | {refused} | {away:.2f} | {success} | {opened:.0f} / {plain:.0f} |"


Cell = tuple[str, str, Sequence[str]]


def cells(aggregators: Sequence[str], attacks: Sequence[str], bad: Sequence[Sequence[str]]) -> list[Cell]:
    """The honest cell of an aggregator first: the others are compared with it."""
    kinds = [name for name in attacks if name != "none"]
    return [cell for name in aggregators for cell in ((name, "none", ()), *product([name], kinds, bad))]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--aggregators", nargs="+", choices=[*AGGREGATORS, GOVERNED], default=list(AGGREGATORS))
    asked.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    asked.add_argument("--recipe", type=Path, default=RECIPE)
    asked.add_argument("--bad", nargs="+", default=[BAD], help="sites by name; those joined by commas are bad together")
    asked.add_argument("--seeds", nargs="+", type=int, default=[0])
    asked.add_argument("--tasks", type=int, default=30, help="held-out tasks of each world")
    asked.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    asked.add_argument("--output", type=Path, help="a JSON file for the numbers")
    given = asked.parse_args()
    experiment = load_experiment(given.recipe, given.settings)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; {experiment.rounds} rounds, {given.tasks} tasks of each world, "
        f"seeds {given.seeds}",
        flush=True,
    )
    print("| aggregator | bad sites | refused | moved | macro success (%) | by world | back door |", flush=True)
    print("| --- | --- | --- | ---: | ---: | --- | --- |", flush=True)
    bench, numbers = Bench(experiment, given.tasks), list[dict[str, Any]]()
    honest: dict[tuple[str, int], dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        for aggregator, attack, bad in cells(
            given.aggregators, given.attacks, [names.split(",") for names in given.bad]
        ):
            seeds = [bench.cell(aggregator, attack, bad, seed, Path(folder)) for seed in given.seeds]
            for found in seeds:
                found["moved"] = moved(found, honest.setdefault((aggregator, found["seed"]), found))
            cell = {"aggregator": aggregator, "attack": attack, "bad": bad, "seeds": seeds}
            print(row(cell, experiment.rounds), flush=True)
            told = [
                {key: value for key, value in found.items() if key not in ("adapter", "initial")} for found in seeds
            ]
            numbers.append({**cell, "seeds": told})
            if given.output:
                given.output.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
