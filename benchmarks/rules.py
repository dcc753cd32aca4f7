"""What a learning rule costs beside imitation, on the same trajectories in batches of the same size.

python benchmarks/rules.py --model nano --recipe recipes/nano.yaml --trajectories 32 --threads 1
python benchmarks/rules.py --model SmolLM2-135M --trajectories 128 --tokens 1024 --batch 32 --epochs 2

Half of the trajectories, taken in turn, count as failures at the task of the one before: so every rule has something to
compare. As in a round of one's own, each has the probabilities with which its tokens were drawn, here by the adapter that
the lesson begins with. Rules differ in how much they learn from in a round; what is told is the time for each token that
went through the weighted pass, as a ratio to imitation in the same run. A rule needs a pass without gradient over each
batch; one with a reference (kto, dpo, sppo) another over everything at the beginning, which serves the first batch too.

`by_hand` is the yardstick: TRL's loss of `group_policy_gradient` on the same batches with peft and autograd
(`grpo_by_hand.py`). `likeness` is the cosine between what the two have learned.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grpo_by_hand import GrpoByHand
from learning import likeness
from learning_work import model_of, random_trajectories, trajectories_of_recipe

from fedse.networks.swap import load_adapter, train_only
from fedse.networks.training.passes import pass_for
from fedse.networks.training.token_packing import micro_batches
from fedse.objectives.cases import examples_of
from fedse.plugins import resolve
from fedse.types import Adapter, Lesson, Outcome, Trajectory

KEY = 1
IMITATION = "imitation"
COMPARED, BY_HAND = "group_policy_gradient", "by_hand"
RULES = (IMITATION, COMPARED, "kto", "dpo", "sppo", "self_imitation")


def in_groups(trajectories: list[Trajectory]) -> list[Trajectory]:
    """Pairs of a success and a failure at the same task."""
    found = []
    for number, trajectory in enumerate(trajectories):
        won = number % 2 == 0
        outcome = Outcome.SUCCESS if won else Outcome.FAILURE
        found.append(replace(trajectory, task=str(number // 2), outcome=outcome, rewards={"world": float(won)}))
    return found


def drawn(model: Any, start: Adapter, trajectories: list[Trajectory]) -> list[Trajectory]:
    """With the probabilities that exploring would have stored."""
    load_adapter(model.network, start)
    train_only(model.network, start)
    through = pass_for(model.network, checkpointing=False)
    through.begin(start)
    examples = examples_of(trajectories, model.context)
    parts = micro_batches(examples, 0, 4_096)
    values = iter(np.concatenate([through.log_probabilities(part, 0) for part in parts]).tolist())
    return [
        replace(item, adapter=start.digest(), log_probs=tuple(next(values) for _ in range(example.agent_tokens)))
        for item, example in zip(trajectories, examples, strict=True)
    ]


def seconds_of(work: Callable[[], Any], on_gpu: bool) -> tuple[float, float, Any]:
    """By the wall clock, which counts on a GPU, and of the processor."""
    if on_gpu:
        torch.cuda.synchronize()
    begun, busy = time.perf_counter(), time.process_time()
    found = work()
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - begun, time.process_time() - busy, found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="SmolLM2-135M", help="nano, a shape, a folder or a name on the hub")
    options.add_argument("--device", default="auto")
    options.add_argument("--threads", type=int)
    options.add_argument("--recipe", type=Path, help="demonstrations of this recipe's first world")
    options.add_argument("--trajectories", type=int, default=128)
    options.add_argument("--tokens", type=int, default=1024, help="longest trajectory, without a recipe")
    options.add_argument("--opening", type=int, default=200, help="tokens that all trajectories begin with")
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--epochs", type=float, default=2)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    model = model_of(given.model, given.device, given.threads)
    on_gpu = str(model.device).startswith("cuda")
    if given.recipe:
        shown = next(iter(trajectories_of_recipe(given.recipe, given.trajectories, model).values()))
    else:
        words = model.network.get_base_model().config.vocab_size
        shown = random_trajectories(given.trajectories, given.tokens // 2, given.tokens, given.opening, words, 0)
    start = model.initial_adapter(0)
    fresh = drawn(model, start, in_groups(shown))
    settings = {"epochs": given.epochs, "batch_size": given.batch, "learning_rate": 2e-4}
    learners = {name: resolve("learner", name)(model, **settings) for name in RULES}
    learners[BY_HAND] = GrpoByHand(model, **settings)
    lesson = Lesson(start, [item for item in fresh if item.outcome is Outcome.SUCCESS], KEY, fresh)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in learners}
    tokens: dict[str, float] = {}
    learned: dict[str, Adapter] = {}
    for repeat in range(given.repeats + 1):
        # In turn, so that a busy moment of the machine does not fall on one rule alone; the first time warms up.
        for name, learner in learners.items():
            wall, busy, (learned[name], metrics) = seconds_of(lambda learner=learner: learner.learn(lesson), on_gpu)
            tokens[name] = metrics["tokens"]
            if repeat:
                taken[name].append((wall, busy))
    which = 0 if on_gpu else 1
    each = {name: statistics.median(times[which] for times in taken[name]) / tokens[name] for name in learners}
    report = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "settings": {key: str(value) for key, value in vars(given).items() if key != "output"},
        "seconds_are": "wall clock" if on_gpu else "processor time",
        "rules": {
            name: {
                "tokens": round(tokens[name]),
                "tokens_per_second": round(1 / each[name]),
                "times_imitation": round(each[name] / each[IMITATION], 2),
            }
            for name in learners
        },
        "likeness": round(likeness(learned[BY_HAND], learned[COMPARED], start), 4),
    }
    print(json.dumps(report, indent=2))
    if given.output:
        given.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
