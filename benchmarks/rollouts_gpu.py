"""Speed of playing episodes on one GPU, by `generate` of transformers and by the policy, on the same tasks at equal batch.

generate  all open conversations as one padded batch; each turn encodes the whole history again
static    the same with transformers' static cache and its compiled decoding step (`--ways generate static`; compiling
          takes minutes). Always as many rows as there are slots and one size of cache, or each turn would compile anew,
          and the adapter merged into the weights, which spares it two products for each linear layer
policy    the policy as it is

Then tokens drawn per second at a given context, beside what the memory of the card allows: each step must at least read
all weights and all keys and values once.

With `--outgrow`, how much memory it takes when one of many short conversations becomes so long.

Names of `shapes.py`, such as `SmolLM2-135M`, are networks with random weights, whose replies do not end by themselves.

python benchmarks/rollouts_gpu.py --model smollm2 --slots 256 --episodes 256 --out rollouts_gpu.json
python benchmarks/rollouts_gpu.py --model smollm2 --slots 192 --episodes 256 --ways --outgrow 4000
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import TypeAdapter
from shapes import SHAPES, model_class

from fedse.networks.decoding.decoder import Due
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.plugins import Choice, ChoiceOf, build, resolve
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Policy, Reply, Usage
from fedse.rollouts.player import Player
from fedse.seeds import stream
from fedse.types import Adapter, Episode, Purpose, Sampling, Trajectory

WORLDS = ("babyai", "maze", "textcraft", "webshop", "wordle")


class Generate:
    """The usual tool: one call of `generate` for each turn of the whole batch."""

    def __init__(self, model: Any, slots: int, reply_tokens: int) -> None:
        self.model, self.slots, self.reply_tokens = model, slots, reply_tokens
        self.usage = Usage()
        self.ids: dict[int, list[int]] = {}
        self.due: set[int] = set()

    def load(self, adapter: Adapter) -> None:
        from fedse.networks.swap import load_adapter

        load_adapter(self.model.network, adapter)

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        del sampling  # `generate` has one stream of random numbers for the whole batch.
        slot = next(number for number in range(self.slots) if number not in self.ids)
        self.ids[slot] = list(opening)
        return slot

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        self.ids[slot] += ids
        self.due.add(slot)

    def cache(self, longest: int) -> dict[str, Any]:
        """What `generate` is told about the cache, when the longest prompt has so many tokens."""
        del longest
        return {}

    def rows(self, slots: Sequence[int]) -> list[list[int]]:
        return [self.ids[slot] for slot in slots]

    def ready(self) -> list[Reply]:
        slots = sorted(self.due)
        self.due.clear()
        rows = self.rows(slots)
        longest = max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        ends = self.model.chat.end_ids
        answers = self.model.network.generate(
            input_ids=ids.to(self.model.device),
            attention_mask=mask.to(self.model.device),
            max_new_tokens=self.reply_tokens,
            do_sample=True,
            top_k=0,
            eos_token_id=list(ends),
            pad_token_id=0,
            **self.cache(longest),
        )[: len(slots), longest:].tolist()
        replies = []
        for slot, answer in zip(slots, answers, strict=True):
            end = next((place + 1 for place, token in enumerate(answer) if token in ends), len(answer))
            self.ids[slot] += answer[:end]
            self.usage.decoded += end
            replies.append(Reply(slot, tuple(answer[:end]), answer[end - 1] in ends))
        return replies

    def close(self, slot: int) -> None:
        del self.ids[slot]


class StaticGenerate(Generate):
    """`generate` with a static cache, whose decoding step transformers compiles: shapes must stay the same."""

    room = 1024
    """Tokens of a cache: no conversation of this benchmark is longer, or a second cache is made and compiled for."""

    def __init__(self, model: Any, slots: int, reply_tokens: int) -> None:
        super().__init__(model, slots, reply_tokens)
        self.caches: dict[int, Any] = {}

    def load(self, adapter: Adapter) -> None:
        super().load(adapter)
        self.model.network.merge_adapter()

    def rows(self, slots: Sequence[int]) -> list[list[int]]:
        rows = super().rows(slots)
        return rows + [rows[0]] * (self.slots - len(rows))

    def cache(self, longest: int) -> dict[str, Any]:
        from transformers import StaticCache

        room = -(-(longest + self.reply_tokens) // self.room) * self.room
        if room not in self.caches:
            self.caches[room] = StaticCache(config=self.model.network.config, max_cache_len=room)
        self.caches[room].reset()
        return {"past_key_values": self.caches[room]}


def episodes(count: int) -> list[Episode]:
    made = []
    for name in WORLDS:
        make = partial(resolve("world", name), rules="brief", observation_length="brief", **limits(name))
        for task in make().tasks("train")[: -(-count // len(WORLDS))]:
            key = stream("benchmark", name, task.id)
            made.append(Episode(name, name, make, task, Purpose.EXPLORE, 1, 0, Sampling(key, 1.0)))
    return made[:count]


def limits(name: str) -> dict[str, Any]:
    return {"guesses": 6} if name == "wordle" else {"turn_limit": 8}


def timed(policy: Policy, model: Any, plan: list[Episode]) -> dict[str, Any]:
    policy.load(model.initial_adapter(0))
    player = Player(policy, model.chat, model.context)
    player.play(plan, "warm-up")  # Kernels are compiled and graphs recorded for all shapes that occur.
    model.chat._often_said.cache_clear()  # What it said is said again, and in a run most of it would be new.
    before = policy.usage.decoded
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    played: list[Trajectory] = player.play(plan, "initial")
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    decoded = policy.usage.decoded - before
    return {
        "episodes": len(played),
        "turns": sum(len(trajectory.steps) for trajectory in played),
        "tokens_per_episode": round(statistics.mean(len(trajectory.token_ids) for trajectory in played)),
        "decoded": decoded,
        "seconds": round(seconds, 2),
        "episodes_per_second": round(len(played) / seconds, 2),
        "decoded_per_second": round(decoded / seconds),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1),
    }


def bandwidth() -> float:
    """Bytes per second of a large copy, reading and writing counted."""
    source = torch.empty(2**32, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        best = max(best, 2 * source.nbytes / (time.perf_counter() - begun))
    return best


def endless(model: Any, slots: int) -> GraphedDecoder:
    """A decoder whose replies all come to their longest."""
    ends, model.chat.end_ids = model.chat.end_ids, frozenset({-1})
    try:
        return GraphedDecoder(model, slots)
    finally:
        model.chat.end_ids = ends


@torch.inference_mode()
def decoding(model: Any, slots: int, context: int, reply: int, speed: float) -> dict[str, Any]:
    """Tokens per second while every slot draws, from `context` - `reply` / 2 to `context` + `reply` / 2 tokens."""
    decoder = endless(model, slots)
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(10, 1000, (slots, context - reply // 2), generator=random).tolist()
    due = [Due(slot, 0, ids[slot], Sampling(slot, 1.0), 0, reply) for slot in range(slots)]
    decoder.begin(due)  # What is recorded once for each number of rows and pieces.
    while decoder.under_way:
        decoder.advance()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    decoder.begin(due)
    torch.cuda.synchronize()
    encoded = time.perf_counter()
    while decoder.under_way:
        decoder.advance()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - encoded
    network = decoder._network
    weights = sum(p.nbytes for p in model.network.get_base_model().parameters())
    kept = len(network.layers) * 2 * network.key_heads * network.head_size * network.dtype.itemsize
    limit = slots / ((weights + slots * context * kept) / speed)
    rate = slots * reply / seconds
    return {
        "slots": slots,
        "context": context,
        "decoded_per_second": round(rate),
        "limit_of_memory_per_second": round(limit),
        "share_of_limit": round(rate / limit, 3),
        "milliseconds_per_step": round(1000 * seconds / reply, 2),
        "prefilled_per_second": round(slots * len(ids[0]) / (encoded - begun)),
    }


@torch.inference_mode()
def outgrowing(model: Any, slots: int, short: int, long: int) -> dict[str, Any]:
    """GiB while every slot has a conversation of `short` tokens and the first goes on to `long` ones."""
    decoder = endless(model, slots)
    reply = 32
    ids = torch.randint(10, 1000, (long,), generator=torch.Generator().manual_seed(0)).tolist()
    for due in (
        [Due(slot, 0, ids[: short - reply], Sampling(slot, 1.0), 0, reply) for slot in range(slots)],
        [Due(0, short - 1, ids[:reply], Sampling(0, 1.0), reply, reply)],
    ):
        decoder.begin(due)
        while decoder.under_way:
            decoder.advance()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    start = short + 2 * reply - 2
    decoder.begin([Due(0, start, ids[: long - start - reply], Sampling(0, 1.0), 2 * reply, reply)])
    while decoder.under_way:
        decoder.advance()
    torch.cuda.synchronize()
    return {
        "slots": slots,
        "short": short,
        "long": long,
        "gib_before": round(before / 2**30, 2),
        "gib_after": round(torch.cuda.memory_allocated() / 2**30, 2),
        "gib_most": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "seconds": round(time.perf_counter() - begun, 3),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="smollm2", help="as in an experiment file, or a name of `shapes.py`")
    options.add_argument("--slots", type=int, default=256)
    options.add_argument("--episodes", type=int, default=256)
    options.add_argument("--reply-tokens", type=int, default=32)
    options.add_argument("--ways", nargs="*", choices=["generate", "static"], default=["generate"])
    options.add_argument("--contexts", type=int, nargs="*", default=[300, 600])
    options.add_argument("--decoding-slots", type=int, nargs="*", default=[256, 1024])
    options.add_argument("--more-episodes", type=int, default=0, help="play as many once more with 1024 slots")
    options.add_argument("--outgrow", type=int, default=0, help="tokens that one of many conversations comes to")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    if given.model in SHAPES:
        model: Any = model_class(given.model)()
    else:
        model = build("model", TypeAdapter(Annotated[Choice, ChoiceOf("model")]).validate_python(given.model))
    plan = episodes(given.episodes)
    result: dict[str, Any] = {
        "machine": f"{torch.cuda.get_device_name()}, {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in ("torch", "transformers", "peft")},
        "model": given.model,
        "dtype": str(model.network.dtype),
    }

    def report(name: str, value: Any) -> None:
        result[name] = value
        print(name, json.dumps(value), flush=True)
        if given.out:
            given.out.write_text(json.dumps(result, indent=1) + "\n")

    speed = bandwidth()
    report("copy_bytes_per_second", round(speed))
    for slots in given.decoding_slots:
        for context in given.contexts:
            report(f"decoding_{slots}_{context}", decoding(model, slots, context, 64, speed))
            torch.cuda.empty_cache()
    if given.outgrow:
        report("outgrowing", outgrowing(model, given.slots, 600, given.outgrow))
        torch.cuda.empty_cache()
    ways: dict[str, Any] = {"policy": TransformerPolicy, "generate": Generate, "static": StaticGenerate}
    for way in ("policy", *given.ways):
        report(way, timed(ways[way](model, slots=given.slots, reply_tokens=given.reply_tokens), model, plan))
        model.network.unmerge_adapter()
        torch.cuda.empty_cache()
        if way == "policy" and given.more_episodes:
            policy = TransformerPolicy(model, slots=1024, reply_tokens=given.reply_tokens)
            report("policy_1024_slots", timed(policy, model, episodes(given.more_episodes)))
            del policy
            torch.cuda.empty_cache()
    for way in given.ways:
        ratio = result["policy"]["episodes_per_second"] / result[way]["episodes_per_second"]
        report(f"policy_times_{way}", round(ratio, 1))


if __name__ == "__main__":
    main()
