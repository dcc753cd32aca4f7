"""Speed and memory of one learning round, three ways on the same trajectories in the same batches.

trainer  PEFT with Hugging Face's Trainer: padded batches, labels of -100 where the world speaks, bf16 on a GPU
padded   the learner as it is for networks without a fast path: padded, logits of the agent's tokens only
packed   the learner as it is, one client after another
together the learner as it is, all clients in one pass on a GPU (not unless asked for with --ways)
private  the learner under noise, all trajectories in one step, each cut by itself (not unless asked for either)

python benchmarks/learning.py --model nano --recipe recipes/nano.yaml --threads 1
python benchmarks/learning.py --model SmolLM2-135M --trajectories 128 --tokens 2048 --batch 32 --output learning.json

What one pass for five adapters could win at best is seen in one client with five times the batch and five times the rank.
`likeness_to_packed` is the cosine between what each client learned in either way, `likeness_of_equal_runs` that between two
repetitions of `packed`:

python benchmarks/learning.py --clients 5 --trajectories 200 --tokens 620 --opening 120 --ways packed together
python benchmarks/learning.py --clients 5 --trajectories 200 --tokens 620 --opening 120 60 200 90 150 --ways packed together
python benchmarks/learning.py --trajectories 1000 --tokens 620 --opening 120 --batch 40 --rank 40 --ways packed

Names of `shapes.py`, such as `SmolLM2-135M`, are networks with random weights: nothing to download. Without a recipe
trajectories are random tokens: an opening that all share, then observations and replies in turn, up to a random length.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learning_work import model_of, random_trajectories, trajectories_of_recipe

from fedse.learners.dp_imitation import DpImitation
from fedse.learners.imitation import Imitation
from fedse.networks.swap import load_adapter, read_adapter
from fedse.networks.training.kept_passes import KeptPasses
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.passes import PaddedPass
from fedse.networks.training.token_packing import Example
from fedse.objectives.cases import examples_of, group
from fedse.types import Adapter, Lesson, Trajectory

KEY = 1
SECRET = bytes(32)


class InOrder(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, batches: Sequence[Sequence[Example]]) -> None:
        self.examples = [example for batch in batches for example in batch]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.examples[index]
        return {"input_ids": example.ids, "labels": np.where(example.train, example.ids, -100)}


def collated(items: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(item["input_ids"]) for item in items)

    def padded(key: str, value: int) -> torch.Tensor:
        rows = [np.pad(item[key], (0, longest - len(item[key])), constant_values=value) for item in items]
        return torch.from_numpy(np.stack(rows))

    attention = [np.arange(longest) < len(item["input_ids"]) for item in items]
    return {
        "input_ids": padded("input_ids", 0),
        "labels": padded("labels", -100),
        "attention_mask": torch.from_numpy(np.stack(attention).astype(np.int64)),
    }


class WithTrainer:
    """Gets our batches in our order, sorted by length, which spares it most padding."""

    def __init__(self, model: Any, given: argparse.Namespace) -> None:
        self.model, self.given = model, given

    def learn(self, lesson: Lesson) -> tuple[Adapter, dict[str, float]]:
        from torch.utils.data import SequentialSampler
        from transformers import Trainer, TrainingArguments

        given = self.given

        class InOurOrder(Trainer):  # type: ignore[misc]
            def _get_train_sampler(self, *_: Any) -> Any:
                return SequentialSampler(dataset)

        random = np.random.Generator(np.random.Philox(key=lesson.key))
        batches = list(group(examples_of(lesson.trajectories, self.model.context), given.batch, random))
        # A short batch in the middle would shift all after it.
        batches.sort(key=len, reverse=True)
        dataset = InOrder(batches)
        load_adapter(self.model.network, lesson.start)
        parts = given.trainer_rows or given.batch
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                num_train_epochs=1,
                per_device_train_batch_size=parts,
                gradient_accumulation_steps=-(-given.batch // parts),
                learning_rate=given.rate,
                lr_scheduler_type="cosine",
                weight_decay=0.0,
                bf16=self.model.device.startswith("cuda"),
                use_cpu=self.model.device == "cpu",
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
            )
            trainer = InOurOrder(
                model=self.model.network, args=arguments, train_dataset=dataset, data_collator=collated
            )
            result = trainer.train()
        self.model.network.eval()
        training = {"loss": result.training_loss, "training_seconds": result.metrics["train_runtime"]}
        return read_adapter(self.model.network, like=lesson.start), training


class Padded(Imitation):
    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, **options)
        self._passes = KeptPasses(model.network, self.options.checkpointing, padded_pass)


def padded_pass(network: Any, checkpointing: bool) -> PaddedPass:
    vector = LoraVector(network)
    return PaddedPass(vector, PaddedNetwork(network, vector, checkpointing))


class Way:
    """One way to learn, and how long each client's round took. The first time warms up and is told apart."""

    def __init__(self, make: Callable[[], Any], model: Any, rounds: dict[str, list[Trajectory]]) -> None:
        self.make, self.model, self.rounds = make, model, rounds
        self.learner: Any = None
        self.seconds: list[dict[str, float]] = []
        self.cpu_seconds: list[float] = []
        self.adapters: dict[str, Adapter] = {}
        self.adapters_before: dict[str, Adapter] = {}
        """Of the repetition before the last."""
        self.losses: dict[str, float] = {}
        self.training_seconds: list[float] = []
        self.shared = 0.0
        """Of all tokens, those of an opening that was computed with another trajectory."""

    def repeat(self) -> None:
        self.learner = self.learner or self.make()
        start, taken, cpu_begun = self.model.initial_adapter(0), {}, time.process_time()
        self.adapters_before, self.adapters = self.adapters, {}
        for clients in self.groups():
            begun = time.perf_counter()
            learned = self.learn([Lesson(start, self.rounds[client], KEY, secret=SECRET) for client in clients])
            if self.model.device.startswith("cuda"):
                torch.cuda.synchronize()
            taken[" ".join(clients)] = time.perf_counter() - begun
            for client, (adapter, metrics) in zip(clients, learned, strict=True):
                self.adapters[client] = adapter
                if "loss" in metrics:
                    self.losses[client] = round(metrics["loss"], 5)
                self.shared = metrics.get("shared_share", 0.0)
                if "training_seconds" in metrics:
                    self.training_seconds.append(metrics["training_seconds"])
        self.seconds.append(taken)
        self.cpu_seconds.append(time.process_time() - cpu_begun)

    def groups(self) -> list[list[str]]:
        return [[client] for client in self.rounds]

    def learn(self, lessons: Sequence[Lesson]) -> Sequence[Any]:
        return [self.learner.learn(lesson) for lesson in lessons]

    def report(self, tokens: int, operations: float, rate: float) -> dict[str, Any]:
        first, *later = (sum(taken.values()) for taken in self.seconds)
        middle = statistics.median(later)
        own = self.training_seconds[len(self.rounds) :]
        return {
            # Without setting up the Trainer, which it does anew for each client and round.
            **({"training_seconds": round(statistics.median(own) * len(self.rounds), 3)} if own else {}),
            "seconds": round(middle, 3),
            "spread": [round(min(later), 3), round(max(later), 3)],
            "cpu_seconds": round(statistics.median(self.cpu_seconds[1:]), 3),
            "first_seconds": round(first, 3),
            "tokens_per_second": round(tokens / middle),
            "share_of_matrix_rate": round(operations / middle / rate, 4),
            "by_client": {
                client: round(statistics.median(taken[client] for taken in self.seconds[1:]), 3)
                for client in self.seconds[0]
            },
            "loss": self.losses,
        }


class Together(Way):
    def groups(self) -> list[list[str]]:
        return [list(self.rounds)]

    def learn(self, lessons: Sequence[Lesson]) -> Sequence[Any]:
        return self.learner.learn_together(lessons)  # type: ignore[no-any-return]


def in_turn(ways: dict[str, Way], repeats: int) -> dict[str, float]:
    """On a CPU, so that a busy moment of the machine does not fall on one way alone."""
    for _ in range(repeats + 1):
        for way in ways.values():
            way.repeat()
    return {}


def one_after_another(ways: dict[str, Way], repeats: int) -> dict[str, float]:
    """On a GPU, so that the memory that each way reserves can be told: it is returned, in GiB."""
    reserved = {}
    for name, way in ways.items():
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(repeats + 1):
            way.repeat()
        reserved[name] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
        way.learner = None
    return reserved


def matrix_rate(device: str) -> float:
    """Floating-point operations a second of a large matrix product: what the hardware can do at best."""
    on_gpu = device.startswith("cuda")
    size, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(10):
            product = left @ right
        product[0, 0].item()  # Waits for the device.
        best = min(best, (time.perf_counter() - begun) / 10)
    return 2 * size**3 / best


def needed_operations(model: Any, rounds: dict[str, list[Trajectory]]) -> float:
    """Of one round in the usual count, without padding: the base forward and back to its inputs, LoRA three times.

    Output layer for the agent's tokens only, attention over what each token sees; nothing computed twice, nothing shared.
    """
    base = model.network.get_base_model()
    config = base.config
    head = base.lm_head.weight.numel()
    attention = config.num_hidden_layers * config.num_attention_heads * base.model.layers[0].self_attn.head_dim
    dense = dense_operations(model)
    total = 0.0
    for items in rounds.values():
        for item in items:
            length = min(len(item.token_ids), model.context)
            # Two products forward and four back, each over half of all pairs.
            total += length * dense + 6 * attention * length**2
            total += 4 * head * sum(item.train_mask[:length])
    return total


def dense_operations(model: Any) -> float:
    """Of a token in all layers, without attention: the base forward and back to its inputs, LoRA three times."""
    named = list(model.network.get_base_model().model.layers.named_parameters())
    trained = sum(parameter.numel() for name, parameter in named if ".lora_" in name)
    frozen = sum(parameter.numel() for name, parameter in named if ".lora_" not in name)
    return float(4 * frozen + 6 * trained)


def likeness(one: Adapter, other: Adapter, start: Adapter) -> float:
    """Cosine between what two ways have learned."""
    changes = [
        np.concatenate([(found.tensors[name] - start.tensors[name]).ravel() for name in sorted(start.tensors)])
        for found in (one, other)
    ]
    return float(changes[0] @ changes[1] / np.linalg.norm(changes[0]) / np.linalg.norm(changes[1]))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="SmolLM2-135M", help="nano, a shape, a folder or a name on the hub")
    options.add_argument("--device", default="auto")
    options.add_argument("--threads", type=int)
    options.add_argument("--recipe", type=Path, help="demonstrations of this recipe's worlds, one client after another")
    options.add_argument("--trajectories", type=int, default=128, help="of each client")
    options.add_argument("--tokens", type=int, default=2048, help="longest trajectory")
    options.add_argument("--shortest", type=int, help="half of the longest unless told")
    options.add_argument("--clients", type=int, default=1, help="how many, without a recipe")
    told = "tokens that all trajectories of a client begin with; several go to one client after another"
    options.add_argument("--opening", type=int, nargs="+", default=[200], help=told)
    options.add_argument("--batch", type=int, default=8, help="trajectories behind one step")
    options.add_argument("--rank", type=int, help="of the adapters; the model's own unless told")
    options.add_argument("--rate", type=float, default=2e-4)
    options.add_argument("--tokens-at-once", type=int)
    options.add_argument("--trainer-rows", type=int, help="rows the Trainer takes at once, if not the whole batch")
    options.add_argument("--checkpointing", action="store_true")
    options.add_argument("--ways", nargs="+", default=["trainer", "padded", "packed"])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    model = model_of(given.model, given.device, given.threads, given.rank)
    if given.recipe:
        rounds = trajectories_of_recipe(given.recipe, given.trajectories, model)
    else:
        vocabulary = model.network.get_base_model().config.vocab_size
        shortest = given.shortest or given.tokens // 2
        rounds = {
            f"random {number}": random_trajectories(
                *(given.trajectories, shortest, given.tokens, given.opening[number % len(given.opening)]),
                vocabulary,
                number,
            )
            for number in range(given.clients)
        }
    settings: dict[str, Any] = {"epochs": 1, "batch_size": given.batch, "learning_rate": given.rate}
    settings |= {"tokens_at_once": given.tokens_at_once, "checkpointing": given.checkpointing}
    makers: dict[str, Callable[[], Any]] = {
        "trainer": lambda: WithTrainer(model, given),
        "padded": lambda: Padded(model, **settings),
        "packed": lambda: Imitation(model, **settings),
        "together": lambda: Imitation(model, **settings),
        "private": lambda: DpImitation(model, **settings, sampling_rate=1.0),
    }
    rate, operations = matrix_rate(model.device), needed_operations(model, rounds)
    ways = {name: (Together if name == "together" else Way)(makers[name], model, rounds) for name in given.ways}
    reserved = (one_after_another if model.device.startswith("cuda") else in_turn)(ways, given.repeats)
    tokens = sum(min(len(item.token_ids), model.context) for items in rounds.values() for item in items)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    report: dict[str, Any] = {
        "hardware": torch.cuda.get_device_name() if model.device.startswith("cuda") else machine,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("torch", "transformers", "peft", "accelerate")},
        "settings": {key: value for key, value in vars(given).items() if key not in ("recipe", "output")}
        | {"recipe": given.recipe.name if given.recipe else None},
        "trajectories": sum(map(len, rounds.values())),
        "tokens": tokens,
        "agent_share": round(sum(item.agent_tokens for items in rounds.values() for item in items) / tokens, 3),
        "matrix_rate_tflops": round(rate / 1e12, 3),
        "limit_tokens_per_second": round(tokens * rate / operations),
        "ways": {name: way.report(tokens, operations, rate) for name, way in ways.items()},
        "reserved_gib": reserved,
    }
    if "packed" in ways:
        others = [name for name in ways if name != "packed"]
        times, start = {name: found["seconds"] for name, found in report["ways"].items()}, model.initial_adapter(0)
        cpu_times = {name: found["cpu_seconds"] for name, found in report["ways"].items()}
        report["packed_times"] = {name: round(times[name] / times["packed"], 2) for name in others}
        report["packed_times_in_cpu_seconds"] = {
            name: round(cpu_times[name] / cpu_times["packed"], 2) for name in others
        }
        report["packed_memory_share"] = {
            name: round(reserved["packed"] / reserved[name], 3) for name in others if reserved
        }
        packed = ways["packed"]
        report["likeness_of_equal_runs"] = {
            client: round(likeness(packed.adapters[client], packed.adapters_before[client], start), 5)
            for client in rounds
        }
        report["likeness_to_packed"] = {
            name: {
                client: round(likeness(ways[name].adapters[client], packed.adapters[client], start), 5)
                for client in rounds
            }
            for name in others
        }
    text = json.dumps(report, indent=1)
    if given.output:
        given.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
