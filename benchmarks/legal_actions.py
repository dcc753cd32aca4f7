"""What `policy.legal_actions` changes before any training: success, invalid actions and time, without it and with it.

Both play the same held-out tasks of an experiment's worlds, in turns of a few episodes: greedily as evaluations do, or at
another temperature. Times are of the processor, worlds included.

python benchmarks/legal_actions.py --experiment recipes/nano.yaml --tasks 200 --temperature 0 --threads 1
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from typing import Any

from fedse.experiments.components import Components, build_components
from fedse.experiments.options import load_experiment
from fedse.plugins import build
from fedse.protocols import Policy
from fedse.rollouts.player import Player
from fedse.seeds import generator, stream
from fedse.types import Episode, Outcome, Purpose, Sampling, Task, Trajectory

AT_ONCE = 50


def held_out(components: Components, client: str, label: str, count: int) -> list[Task]:
    """The validation tasks that an evaluation would take."""
    world = components.worlds[client][label]()
    tasks = world.tasks("validation")
    return [tasks[index] for index in generator("held out", world.name, "validation").permutation(len(tasks))[:count]]


def measured(
    components: Components, policies: dict[str, Policy], client: str, label: str, count: int, temperature: float
) -> dict[str, Any]:
    make_world = components.worlds[client][label]
    tasks = held_out(components, client, label, count)
    samplings = [Sampling(stream(client, task.id), temperature) for task in tasks]
    episodes = [
        Episode(client, label, make_world, task, Purpose.EVALUATE, 1, 0, sampling)
        for task, sampling in zip(tasks, samplings, strict=True)
    ]
    for task in tasks:
        # Worlds remember what they made for a task, which should not count as the time of whoever plays it first.
        make_world().reset(options={"task": task.id})
    played: dict[str, list[Trajectory]] = {way: [] for way in policies}
    token_time: dict[str, list[float]] = {way: [] for way in policies}
    for begin in range(0, len(episodes), AT_ONCE):
        # The two take turns, so that a busy moment of the machine does not fall on one of them alone.
        order = list(policies) if begin // AT_ONCE % 2 == 0 else list(reversed(policies))
        for way in order:
            policy = policies[way]
            player = Player(policy, components.model.chat, components.model.context)
            before, begun = policy.usage.decoded, time.process_time()
            played[way] += player.play(episodes[begin : begin + AT_ONCE], "initial")
            token_time[way].append((time.process_time() - begun) / (policy.usage.decoded - before))
            print(f"{label} {way} {len(played[way])}/{len(episodes)}", file=sys.stderr, flush=True)
    ratios = [on / off for on, off in zip(token_time["legal"], token_time["free"], strict=True)]
    return {
        "episodes": len(episodes),
        "success": {way: _percent(item.outcome is Outcome.SUCCESS for item in found) for way, found in played.items()},
        "invalid": {
            way: _percent(not step.valid for item in found for step in item.steps) for way, found in played.items()
        },
        "errors": sum(item.outcome is Outcome.ERROR for found in played.values() for item in found),
        "time_per_token_legal_to_free": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 3),
    }


def _percent(marks: Any) -> float:
    return round(100 * statistics.mean(map(float, marks)), 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--experiment", default="recipes/nano.yaml")
    options.add_argument("--tasks", type=int, default=200)
    options.add_argument("--temperature", type=float, default=0.0)
    options.add_argument("--threads", type=int, default=1)
    given = options.parse_args()
    experiment = load_experiment(given.experiment, [f"model.threads={given.threads}"])
    components = build_components(experiment)
    policies = {}
    for way, legal in (("free", False), ("legal", True)):
        part = experiment.policy.model_copy(update={"options": {**experiment.policy.options, "legal_actions": legal}})
        policies[way] = build("policy", part, components.model)
        policies[way].load(components.model.initial_adapter(experiment.seed))
    worlds = {
        label: measured(components, policies, client, label, given.tasks, given.temperature)
        for client, makers in components.worlds.items()
        for label in makers
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    setting = {"machine": machine, "threads": given.threads, "temperature": given.temperature, "versions": versions}
    print(json.dumps({**setting, "worlds": worlds}, indent=1))


if __name__ == "__main__":
    main()
