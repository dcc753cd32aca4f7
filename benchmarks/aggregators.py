"""Cost of each aggregator beside the plain mean, in the same run, with updates on disk as in a round.

python benchmarks/aggregators.py                 an adapter of SmolLM2-135M's shape, 5 clients
python benchmarks/aggregators.py --clients 20    other numbers of clients

time, memory   CPU time and peak of NumPy's memory of one aggregation, as multiples of the mean's
up, down       values that cross for each client, as multiples of one adapter; down is after `--rounds` rounds
to mean        distance between the product of the next adapter and the mean of the clients' products, as a share of it
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedse.adapters.packing import length, pack
from fedse.adapters.plan import plan_of, sent
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators.check import at_client, effect
from fedse.plugins import resolve
from fedse.plugins.shipped import KNOWN
from fedse.types import Adapter, ClientUpdate, ServerState

WIDTH, INNER, HEADS, RANK = 576, 1536, 192, 8
MODULES = {  # outputs, inputs
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (HEADS, WIDTH),
    "self_attn.v_proj": (HEADS, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}


def begin(layers: int) -> ServerState:
    """An adapter as after some rounds: A about as it was drawn, B grown to a twentieth of it."""
    draw = np.random.default_rng(0)
    tensors = {}
    for layer in range(layers):
        for module, (outputs, inputs) in MODULES.items():
            name = f"model.layers.{layer}.{module}"
            bound = 1 / np.sqrt(inputs)
            tensors[f"{name}.lora_A.weight"] = draw.uniform(-bound, bound, (RANK, inputs)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = (0.05 * bound * draw.standard_normal((outputs, RANK))).astype(np.float32)
    return ServerState(0, Adapter(tensors, {"r": RANK, "lora_alpha": 2 * RANK}))


def answers(state: ServerState, aggregator: Any, clients: int, folder: Path) -> list[UpdateFile]:
    """Each client moves every entry by a tenth of the adapter's spread, in a direction of its own."""
    asked = sent(state.adapter, plan_of(aggregator).in_round(state.round + 1))
    vector = pack(asked)
    spread = 0.1 * float(vector.std())
    found = []
    for client in range(clients):
        change = spread * np.random.default_rng([state.round, client]).standard_normal(len(vector))
        counts = {"explored": 50, "errors": 0, "successes": 5 + client, "learned_from": 20 + 7 * client}
        update = ClientUpdate(
            f"c{client:03d}", state.round + 1, (vector + change).astype(np.float32), asked.layout, counts, {}
        )
        found.append(store_update(update, folder))
    return found


def seconds(pairs: list[tuple[Any, list[UpdateFile]]], state: ServerState, repeats: int) -> list[float]:
    """CPU time of each, taking turns; the fastest of several, which other work on the machine disturbs least."""
    found: list[list[float]] = [[] for _ in pairs]
    for _ in range(repeats):
        for (aggregator, updates), times in zip(pairs, found, strict=True):
            began = time.process_time()
            aggregator.aggregate(state, updates)
            times.append(time.process_time() - began)
    return [min(times) for times in found]


def peak(aggregator: Any, state: ServerState, updates: list[UpdateFile]) -> int:
    tracemalloc.start()
    aggregator.aggregate(state, updates)
    reached = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return reached


def distance(state: ServerState, following: ServerState, updates: list[UpdateFile], layers: int) -> float:
    """Over the modules of a few layers; dense products of all would not fit."""
    names = [f"model.layers.{layer}." for layer in range(min(2, layers))]

    def few(adapter: Adapter) -> Adapter:
        return Adapter({name: tensor for name, tensor in adapter.tensors.items() if name.startswith(tuple(names))})

    mean: dict[str, Any] = {}
    for update in updates:
        for name, product in effect(few(at_client(state, update))).items():
            mean[name] = mean.get(name, 0.0) + product / len(updates)
    found = effect(few(following.adapter))
    gap = sum(float(np.sum((found[name] - mean[name]) ** 2)) for name in mean)
    return float(np.sqrt(gap / sum(float(np.sum(product**2)) for product in mean.values())))


def _shares_all(aggregator: Any) -> bool:
    """Where clients keep a factor, each has a product of its own and there is no mean to be near to."""
    plan = plan_of(aggregator).in_round(1)
    return plan.trained == plan.sent


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return "exact" if share < 1e-6 else f"{100 * share:.2g} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("names", nargs="*", default=list(KNOWN["aggregator"]), metavar="NAME")
    options = parser.parse_args()

    start = begin(options.layers)
    whole = length(start.adapter.layout)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}, "
        f"NumPy {np.__version__}, Python {sys.version.split()[0]}; {options.clients} clients, adapter of {whole:,} values"
    )
    rows = []
    with TemporaryDirectory() as folder:
        mean = resolve("aggregator", "mean")()
        to_mean = answers(start, mean, options.clients, Path(folder) / "mean")
        least = peak(mean, start, to_mean)
        print(f"mean: {1000 * seconds([(mean, to_mean)], start, options.repeats)[0]:.0f} ms, {least / 1e6:.0f} MB\n")
        for name in options.names:
            aggregator = resolve("aggregator", name)()
            updates = answers(start, aggregator, options.clients, Path(folder) / "own")
            following, _ = aggregator.aggregate(start, updates)
            plain, own = seconds([(mean, to_mean), (aggregator, updates)], start, options.repeats)
            row: dict[str, Any] = {
                "time": own / plain,
                "memory": peak(aggregator, start, updates) / least,
                "up": length(updates[0].layout) / whole,
                "to mean": distance(start, following, updates, options.layers) if _shares_all(aggregator) else None,
            }
            for _ in range(options.rounds - 1):
                sent_back = answers(following, aggregator, options.clients, Path(folder) / "own")
                following, _ = aggregator.aggregate(following, sent_back)
            row["down"] = length(following.adapter.layout) / whole
            rows.append((name, row))
    print("| aggregator | time | memory | up | down | to mean |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, row in rows:
        print(
            f"| `{name}` | {row['time']:.1f} | {row['memory']:.1f} | {row['up']:.2f} | {row['down']:.2f} "
            f"| {_percent(row['to mean'])} |"
        )


if __name__ == "__main__":
    main()
