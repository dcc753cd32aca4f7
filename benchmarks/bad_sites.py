"""What one bad site of five can do to the others: a wrapped client sends something else than it learned.

python benchmarks/bad_sites.py                       the table of docs/security.md, with nano on a CPU
python benchmarks/bad_sites.py --aggregators mean --attacks none scaled

It is a program beside the package and no plug-in: no experiment file can ask for a bad site.

refused   by the checks that are on by default, in how many rounds
moved     distance of the last adapter from that of the same aggregator with an honest guest, as a share of how far that went
success   of held-out tasks in the worlds of the honest sites, greedy; macro, with each world
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from fedse.adapters.packing import pack
from fedse.adapters.plan import part_to_send
from fedse.clients.client import Client
from fedse.engines.local import LocalEngine
from fedse.experiments.assembling import Federation, assemble
from fedse.experiments.building import build_components
from fedse.experiments.components import Components
from fedse.experiments.options import Experiment, load_experiment
from fedse.federation.playing import play_at
from fedse.federation.sites import Sites
from fedse.plugins import build
from fedse.probes.evaluation import Evaluation, EvaluationOptions
from fedse.protocols import Learner
from fedse.runs.folder import RunFolder
from fedse.types import Adapter, ClientUpdate, Encoded, Learned, Lesson, RoundTask, Vector, Work

RECIPE = Path(__file__).parents[1] / "recipes/bad_sites.yaml"
BAD = "guest"
MEASURED = ("maze", "textcraft", "webshop")
AGGREGATORS: dict[str, Mapping[str, Any]] = {
    "mean": {"name": "mean"},
    "norm_bounded": {"name": "norm_bounded"},
    "median": {"name": "median"},
    "multi_krum": {"name": "multi_krum"},
    "fedavgm": {"name": "fedavgm", "nesterov": True, "learning_rate": 0.7},
    "trimmed_mean": {"name": "trimmed_mean"},
}


class Own(NamedTuple):
    """What a bad site has at hand when it sends something."""

    broadcast: Vector
    learned: Vector
    past: list[Vector]
    """What it learned in all rounds, this one last."""

    def noise(self) -> Vector:
        return np.random.default_rng(len(self.past)).standard_normal(self.learned.size).astype(np.float32)


Attack = Callable[[Own], Vector]


def scaled(by: float) -> Attack:
    return lambda own: (own.broadcast + np.float32(by) * (own.learned - own.broadcast)).astype(np.float32)


def noisy(own: Own) -> Vector:
    """Ten times as far as it learned, in a random direction."""
    noise = own.noise()
    length = 10 * np.linalg.norm(own.learned - own.broadcast) / np.linalg.norm(noise)
    return (own.learned + length * noise).astype(np.float32)


def free_rider(own: Own) -> Vector:
    """What it was sent, with a little noise, so that it does not look as if nothing was learned."""
    return (own.broadcast + 1e-4 * own.noise()).astype(np.float32)


def with_nan(own: Own) -> Vector:
    sent = own.learned.copy()
    sent[len(sent) // 2] = np.nan
    return sent


ATTACKS: dict[str, Attack] = {
    "none": lambda own: own.learned,
    "scaled": scaled(10.0),
    "sign_flipped": scaled(-10.0),
    "noisy": noisy,
    "free_rider": free_rider,
    "stale": lambda own: own.past[0],
    "replayed": lambda own: own.past[max(0, len(own.past) - 2)],
    "far_scaled": scaled(1000.0),
    "nan": with_nan,
    "wrong_shape": lambda own: own.learned[:-1],
}
"""`stale` sends what it learned in round 1 for ever, `replayed` what it learned in the round before."""
WORST = ("none", "scaled", "sign_flipped", "noisy")
"""Tried with every aggregator; the others with the first one."""


class BadSite:
    """A client that works like any other and hands out something else. What leaves does not pass its door again."""

    def __init__(self, client: Client, attack: Attack) -> None:
        self._client = client
        self._attack = attack
        self._past: list[Vector] = []
        self.name = client.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def work(self, task: RoundTask) -> Work:
        update: ClientUpdate = yield from self._client.work(task)
        if update.vector is None:
            return update
        self._past.append(update.vector)
        broadcast = part_to_send(task, self._client.adapters.plan)
        sent = self._attack(Own(broadcast, update.vector, self._past))
        return replace(update, vector=sent, encoded=Encoded("float32", sent))


class WithBadSites(LocalEngine):
    """The engine of one process, some of whose clients are bad."""

    def __init__(self, sites: Sites, bad: Mapping[str, Attack]) -> None:
        super().__init__(sites)
        for name, attack in bad.items():
            self._clients[name] = BadSite(self._clients[name], attack)  # type: ignore[assignment]


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


def federation(experiment: Experiment, components: Components, attack: Attack, folder: Path) -> Federation:
    run = RunFolder.create(folder / experiment.name, experiment.to_yaml(), experiment.digest())
    return assemble(experiment, components, run, make_engine=partial(WithBadSites, bad={BAD: attack}))


class Bench:
    """One model, one set of lessons and one set of held-out tasks for all cells."""

    def __init__(self, experiment: Experiment, tasks: int) -> None:
        self._experiment = experiment
        components = build_components(experiment)
        self._components = replace(components, learner=LearnedOnce(components.learner))
        self._tasks = tasks
        self._measured: dict[str, dict[str, float]] = {}

    def cell(self, aggregator: str, attack: str, folder: Path) -> dict[str, Any]:
        """A run with one aggregator and one attack."""
        changes = {"aggregator": AGGREGATORS[aggregator], "name": f"{aggregator}-{attack}"}
        experiment = Experiment.model_validate({**self._experiment.model_dump(mode="json"), **changes})
        components = replace(self._components, aggregator=build("aggregator", experiment.aggregator))
        with federation(experiment, components, ATTACKS[attack], folder) as run:
            state = run.server.federate(experiment.rounds, run.initial_adapter)
            reports = [run.run.report(number) or {} for number in range(1, state.round + 1)]
            return {
                "aggregator": aggregator,
                "attack": attack,
                "refused": sum(BAD in report["refused"] for report in reports),
                "why": next((report["refused"][BAD] for report in reports if BAD in report["refused"]), ""),
                "rounds": state.round,
                "success": self._success(run, state.adapter, state.round),
                "adapter": state.adapter,
                "initial": run.server.load(0).adapter,
            }

    def _success(self, run: Federation, adapter: Adapter, number: int) -> dict[str, float]:
        if adapter.digest() not in self._measured:
            probes = {
                client.name: Evaluation(client.site, EvaluationOptions(tasks=self._tasks))
                for client in run.clients
                if client.name in MEASURED
            }
            task = RoundTask(number, "evaluate", pack(adapter), adapter.layout, adapter.config)
            played = play_at(run.engine, probes, adapter, task)
            self._measured[adapter.digest()] = {
                name: found.scores[0].successes / found.scores[0].episodes for name, found in played.items()
            }
        return self._measured[adapter.digest()]


def moved(found: Mapping[str, Any], honest: Mapping[str, Any]) -> float:
    away = np.linalg.norm(pack(found["adapter"]).astype(np.float64) - pack(honest["adapter"]))
    return float(away / np.linalg.norm(pack(honest["adapter"]).astype(np.float64) - pack(honest["initial"])))


def row(found: Mapping[str, Any], honest: Mapping[str, Any]) -> str:
    shown = [100 * value for value in found["success"].values()]
    worlds = " / ".join(f"{value:.0f}" for value in shown)
    refused = f"{found['refused']} of {found['rounds']}" if found["refused"] else "-"
    macro = sum(shown) / len(shown)
    away = f"{moved(found, honest):.2f}"
    return f"| `{found['aggregator']}` | {found['attack']} | {refused} | {away} | {macro:.1f} | {worlds} |"


def cells(aggregators: Sequence[str], attacks: Sequence[str]) -> list[tuple[str, str]]:
    """The honest cell of an aggregator first: the others are compared with it."""
    return [
        (aggregator, attack)
        for aggregator in aggregators
        for attack in ATTACKS
        if attack in attacks and (attack in WORST or aggregator == aggregators[0])
    ]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--aggregators", nargs="+", choices=AGGREGATORS, default=list(AGGREGATORS))
    asked.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    asked.add_argument("--tasks", type=int, default=30, help="held-out tasks of each world")
    asked.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    asked.add_argument("--output", type=Path, help="a JSON file for the numbers")
    given = asked.parse_args()
    experiment = load_experiment(RECIPE, given.settings)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores; {experiment.rounds} rounds, {given.tasks} tasks of each world",
        flush=True,
    )
    print(f"| aggregator | attack | refused | moved | macro success (%) | {' / '.join(MEASURED)} |", flush=True)
    print("| --- | --- | --- | ---: | ---: | --- |", flush=True)
    bench, honest, numbers = Bench(experiment, given.tasks), {}, []
    with TemporaryDirectory() as folder:
        for aggregator, attack in cells(given.aggregators, sorted({"none", *given.attacks})):
            began = time.process_time()
            found = bench.cell(aggregator, attack, Path(folder))
            honest.setdefault(aggregator, found)
            print(row(found, honest[aggregator]), flush=True)
            numbers.append(
                {key: value for key, value in found.items() if key not in ("adapter", "initial")}
                | {"moved": moved(found, honest[aggregator]), "cpu_seconds": round(time.process_time() - began, 1)}
            )
            if given.output:
                given.output.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
