"""Speed of playing episodes with the model `nano` on a CPU, greedily, four ways.

naive         one episode at a time; each turn encodes the whole history again with transformers' `generate`
transformers  the policy with its cache and its slots, each pass through transformers and PEFT
rectangles    the policy with passes of its own over 2 x 48 new tokens, and attention as wide as the longest conversation
fast          the policy as it is: rows of new text without gaps, and attention for each conversation by itself

python benchmarks/rollouts_cpu.py --episodes 64 --threads 1
python benchmarks/rollouts_cpu.py --ways rectangles fast --worlds maze textcraft babyai webshop --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedse.experiments.options import load_experiment
from fedse.models.nano import Nano
from fedse.networks.decoding.decoder import Decoder
from fedse.networks.decoding.llama_forward import LlamaForward
from fedse.networks.decoding.network_forward import NetworkForward
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.plugins import build
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Policy, Reply, Usage
from fedse.rollouts.player import Player
from fedse.types import Adapter, Episode, Purpose, Sampling, Trajectory
from fedse.worlds.world import World

REPLY_TOKENS = 64
RECIPE = Path(__file__).parents[1] / "recipes/nano.yaml"
"""Its worlds are those that nano knows."""


class Naive:
    """What one writes first: no cache between turns, no batch."""

    slots = 1

    def __init__(self, model: Nano, **_: Any) -> None:
        self.model = model
        self.usage = Usage()

    def load(self, adapter: Adapter) -> None:
        from fedse.networks.swap import load_adapter

        load_adapter(self.model.network, adapter)

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        del sampling  # Always greedy.
        self.ids = list(opening)
        return 0

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        del slot  # There is one.
        self.ids += ids

    def ready(self) -> list[Reply]:
        ids = torch.tensor([self.ids])
        answer = self.model.network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(REPLY_TOKENS, self.model.context - len(self.ids)),
            do_sample=False,
            eos_token_id=list(self.model.chat.end_ids),
        )[0, len(self.ids) :].tolist()
        self.ids += answer
        return [Reply(0, tuple(answer), answer[-1] in self.model.chat.end_ids)]

    def close(self, slot: int) -> None:
        pass


class ThroughTransformers(TransformerPolicy):
    def make_decoder(self) -> Decoder:
        return StepwiseDecoder(self.model, self.slots, NetworkForward(self.model.network))


class InRectangles(TransformerPolicy):
    def make_decoder(self) -> Decoder:
        return StepwiseDecoder(self.model, self.slots, LlamaForward(self.model.network))


WAYS: dict[str, Any] = {
    "naive": Naive,
    "transformers": ThroughTransformers,
    "rectangles": InRectangles,
    "fast": TransformerPolicy,
}


def timed(policy: Policy, model: Nano, episodes: list[Episode]) -> tuple[list[Trajectory], float, float]:
    """With seconds by the clock, and seconds of the processor, which other work on the machine disturbs less."""
    policy.load(model.initial_adapter(0))
    begun, own = time.perf_counter(), time.process_time()
    played = Player(policy, model.chat, model.context).play(episodes, "initial")
    return played, time.perf_counter() - begun, time.process_time() - own


def measured(name: str, model: Nano, ways: Mapping[str, int], repeats: int) -> dict[str, Any]:
    """`ways`: how many episodes each plays."""
    (part,) = load_experiment(RECIPE).clients[name].worlds

    def make_world() -> World:
        return build("world", part)  # type: ignore[no-any-return]

    tasks = make_world().tasks("train")[: max(ways.values())]
    plan = [Episode(name, name, make_world, task, Purpose.EVALUATE, 1, 0, Sampling(0, 0.0)) for task in tasks]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    processor: dict[str, list[float]] = {way: [] for way in ways}
    played: dict[str, list[Trajectory]] = {}
    for repeat in range(repeats):
        # The ways take turns, so that a busy moment of the machine does not fall on one of them alone.
        for way, count in ways.items():
            played[way], taken, own = timed(WAYS[way](model, reply_tokens=REPLY_TOKENS), model, plan[:count])
            seconds[way].append(taken)
            processor[way].append(own)
            print(f"{name} {way} {repeat + 1}/{repeats}: {taken:.2f} s", file=sys.stderr, flush=True)
    turns = {way: sum(len(trajectory.steps) for trajectory in played[way]) for way in ways}
    speed = {way: turns[way] / statistics.median(seconds[way]) for way in ways}
    busy = {way: turns[way] / min(processor[way]) for way in ways}
    return {
        "episodes": dict(ways),
        "turns": turns,
        "median_seconds": {way: round(statistics.median(taken), 2) for way, taken in seconds.items()},
        "best_seconds": {way: round(min(taken), 2) for way, taken in seconds.items()},
        "turns_per_second": {way: round(value, 1) for way, value in speed.items()},
        **{f"fast_times_{way}": round(speed["fast"] / speed[way], 2) for way in ways if way != "fast"},
        "least_processor_seconds": {way: round(min(taken), 2) for way, taken in processor.items()},
        "fast_times_by_processor": {way: round(busy["fast"] / busy[way], 2) for way in ways if way != "fast"},
        "same_actions": {
            way: sum(_actions(one) == _actions(fast) for one, fast in zip(played[way], played["fast"], strict=False))
            for way in ways
        },
    }


def _actions(trajectory: Trajectory) -> list[str]:
    return [step.action for step in trajectory.steps]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--worlds", nargs="+", default=["maze", "textcraft"])
    options.add_argument("--episodes", type=int, default=64)
    options.add_argument("--naive-episodes", type=int, default=8, help="the naive way's time is linear in episodes")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="'fast' is always one")
    given = options.parse_args()
    model = Nano(device="cpu", threads=given.threads)
    counts = {"naive": min(given.naive_episodes, given.episodes)}
    ways = {way: counts.get(way, given.episodes) for way in WAYS if way in given.ways or way == "fast"}
    results = {name: measured(name, model, ways, given.repeats) for name in given.worlds}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    print(json.dumps({"machine": machine, "threads": given.threads, "versions": versions, "worlds": results}, indent=1))


if __name__ == "__main__":
    main()
