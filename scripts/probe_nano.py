"""Is what nano gains in a run learned, or is there a cheaper explanation? Every probe tries one on the run's own tasks.

    fedse run recipes/nano.yaml
    python scripts/probe_nano.py runs/nano                        # all probes, a table, and their numbers as JSON
    python scripts/probe_nano.py runs/nano --only openings decisions --tasks 40

openings    the untrained model, every reply made to begin alike: openings of its replies before and after training, by
            successive halving
sampling    the untrained model at several temperatures, and the most frequent of five sampled replies in each turn
constants   the untrained model with a soft prompt of four vectors, or with one bias per layer, fitted to the run's successes
few         an adapter of the same size fitted to eight successes, to eight of each world (means over five draws), and after
            ten optimiser steps
decisions   share of held-out states in which the likeliest reply is an optimal action, before and after
player      the imperfect player that nano was pre-trained on, and the same player always taking its likeliest action
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nano_player import play
from probe_decisions import optimal_share, states_of
from probe_policies import ForcedOpening, Majority, PlainPolicy, SoftPrompt

from fedse.adapters.files import read_adapter
from fedse.experience.buffer import read_file
from fedse.experience.journal import Journal
from fedse.experiments.components import build_components
from fedse.experiments.options import load_experiment
from fedse.models.nano import weights_folder
from fedse.networks.swap import load_adapter
from fedse.plugins import build
from fedse.protocols import Policy
from fedse.rollouts.player import Player
from fedse.runs.folder import RunFolder
from fedse.seeds import generator, stream
from fedse.types import Adapter, Episode, Lesson, Outcome, Purpose, Sampling, Split, Task, Trajectory
from fedse.worlds.world import World

Shares = dict[str, float]
"""Success, or another share, by world."""

LONGEST_OPENING = 12
TEMPERATURES = (0.25, 0.5, 0.75, 1.0)
VOICES = 5
SOFT_VECTORS = 4
FITTING_STEPS = 200
FEW = 8
DRAWS = 5


def held_out(world: World, split: Split, tasks: int) -> list[Task]:
    """Those that an evaluation plays."""
    listed = world.tasks(split)
    return [listed[index] for index in generator("held out", world.name, split).permutation(len(listed))[:tasks]]


class Subject:
    """A finished run, taken apart: its worlds, its model, its adapter before and after, and what it learned from."""

    def __init__(self, run: Path) -> None:
        self.folder = RunFolder.existing(run)
        self.experiment = load_experiment(run / "experiment.yaml")
        self.parts = build_components(self.experiment)
        self.model: Any = self.parts.model
        self.before = self.model.initial_adapter(self.experiment.seed)
        self.after = read_adapter(self.folder.round_folder(self.folder.last_round() or 0) / "adapter")
        self.makers = {label: make for makers in self.parts.worlds.values() for label, make in makers.items()}

    @cached_property
    def successes(self) -> dict[str, list[Trajectory]]:
        """What all sites had in their buffers after the last round, by world."""
        found: dict[str, list[Trajectory]] = {label: [] for label in self.makers}
        for client in self.experiment.clients:
            for trajectory in read_file(self.folder.client_folder(client) / "buffer.sqlite"):
                found[trajectory.world].append(trajectory)
        return found

    def explored(self, round: int) -> list[Trajectory]:
        journals = [Journal(self.folder.client_folder(client) / "episodes") for client in self.experiment.clients]
        return [
            item for journal in journals for item in journal.read(f"{round:04d}") if item.purpose is Purpose.EXPLORE
        ]

    def episodes(self, split: Split, tasks: int, temperature: float = 0.0) -> list[Episode]:
        found = []
        for label, make_world in self.makers.items():
            for task in held_out(make_world(), split, tasks):
                sampling = Sampling(stream("probe", label, task.id), temperature)
                found.append(Episode("probe", label, make_world, task, Purpose.EVALUATE, 0, 0, sampling))
        return found

    def policy(self, adapter: Adapter) -> Policy:
        policy: Policy = build("policy", self.experiment.policy, self.model)
        policy.load(adapter)
        return policy

    def success(self, policy: Policy, split: Split, tasks: int, temperature: float = 0.0) -> Shares:
        played = Player(policy, self.model.chat, self.model.context).play(self.episodes(split, tasks, temperature), "")
        return {
            label: float(np.mean([item.outcome is Outcome.SUCCESS for item in played if item.world == label]))
            for label in self.makers
        }


# The probes. Each gives rows: what was tried, and the shares by world.

Rows = dict[str, Shares]


def openings(subject: Subject, tasks: int) -> Rows:
    """The best opening found on validation tasks, on the test."""
    last = subject.folder.last_round() or 1
    counted: Counter[tuple[int, ...]] = Counter()
    for trajectory in [*subject.explored(1), *subject.explored(last)]:
        for reply in replies_of(trajectory):
            counted.update(tuple(reply[:length]) for length in range(1, min(LONGEST_OPENING, len(reply) - 1) + 1))
    left = [ids for ids, _ in counted.most_common(96)]
    policy = subject.policy(subject.before)
    for episodes in (2, 6, 20):
        found = {ids: mean(subject.success(ForcedOpening(policy, ids), "validation", episodes)) for ids in left}
        left = sorted(left, key=lambda ids: -found[ids])[: max(3, len(left) // 4)]
    left = left[:3]
    return {
        f"every reply begins with {subject.model.chat.text(ids)!r}": subject.success(
            ForcedOpening(policy, ids), "test", tasks
        )
        for ids in left
    }


def sampling(subject: Subject, tasks: int) -> Rows:
    policy = subject.policy(subject.before)
    rows = {f"temperature {heat:g}": subject.success(policy, "test", tasks, heat) for heat in TEMPERATURES}
    rows[f"most frequent of {VOICES} replies"] = subject.success(Majority(policy, VOICES), "test", tasks, 1.0)
    return rows


def constants(subject: Subject, tasks: int) -> Rows:
    rows = {}
    for rate in (3e-2, 1e-2):
        rows[f"soft prompt of {SOFT_VECTORS} vectors, rate {rate:g}"] = with_soft_prompt(subject, tasks, rate)
        rows[f"one bias per layer, rate {rate:g}"] = with_biases(subject, tasks, rate)
    return rows


def with_soft_prompt(subject: Subject, tasks: int, rate: float) -> Shares:
    """Vectors before everything else, put in place of pieces of the vocabulary that no conversation has."""
    network, learned = subject.model.network, every(subject.successes.values())
    load_adapter(network, subject.before)
    spoken = {token for item in learned for token in item.token_ids}
    unspoken = [token for token in range(4, len(subject.model.tokenizer)) if token not in spoken][:SOFT_VECTORS]
    table = network.get_input_embeddings().weight
    stored = table.detach()[unspoken].clone()
    vectors = stored.clone().requires_grad_()

    def logits(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        first = vectors.expand(len(ids), -1, -1)
        seen = torch.cat([torch.ones(len(ids), SOFT_VECTORS, dtype=mask.dtype), mask], dim=1)
        embedded = torch.cat([first, network.get_input_embeddings()(ids)], dim=1)
        return network(inputs_embeds=embedded, attention_mask=seen, use_cache=False).logits[:, SOFT_VECTORS:]

    fit([vectors], logits, learned, rate)
    with torch.no_grad():
        table[unspoken] = vectors
        try:
            return subject.success(SoftPrompt(subject.policy(subject.before), unspoken), "test", tasks)
        finally:
            table[unspoken] = stored


def with_biases(subject: Subject, tasks: int, rate: float) -> Shares:
    network = subject.model.network
    load_adapter(network, subject.before)
    layers = network.get_base_model().model.layers
    biases = [torch.zeros(network.config.hidden_size, requires_grad=True) for _ in layers]

    def shifted(bias: torch.Tensor, module: Any, given: Any, hidden: Any) -> Any:
        del module, given
        return (hidden[0] + bias, *hidden[1:]) if isinstance(hidden, tuple) else hidden + bias

    hooks = [layer.register_forward_hook(partial(shifted, bias)) for layer, bias in zip(layers, biases, strict=True)]
    try:
        fit(
            biases,
            lambda ids, mask: network(input_ids=ids, attention_mask=mask, use_cache=False).logits,
            every(subject.successes.values()),
            rate,
        )
        for bias in biases:
            bias.requires_grad_(False)
        policy = PlainPolicy(subject.model, **subject.experiment.policy.options)
        policy.load(subject.before)
        return subject.success(policy, "test", tasks)
    finally:
        for hook in hooks:
            hook.remove()


def fit(
    parameters: list[torch.Tensor],
    logits: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    trajectories: list[Trajectory],
    rate: float,
    batch: int = 8,
) -> None:
    """Maximum likelihood of the agent's tokens, as the learner's, with these parameters in place of an adapter."""
    random = generator("probe", "fit")
    optimiser = torch.optim.Adam(parameters, lr=rate)
    for step in range(FITTING_STEPS):
        optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + float(np.cos(np.pi * step / FITTING_STEPS)))
        chosen = [trajectories[int(index)] for index in random.integers(len(trajectories), size=batch)]
        longest = max(len(item.token_ids) for item in chosen)
        ids, seen, wanted = (torch.zeros(batch, longest, dtype=torch.long) for _ in range(3))
        for row, item in enumerate(chosen):
            ids[row, : len(item.token_ids)] = torch.tensor(item.token_ids)
            seen[row, : len(item.token_ids)] = 1
            wanted[row, : len(item.token_ids)] = torch.tensor(item.train_mask)
        found = logits(ids, seen)[:, :-1]
        each = torch.nn.functional.cross_entropy(found.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (each * wanted[:, 1:].flatten()).sum() / wanted[:, 1:].sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def few(subject: Subject, tasks: int) -> Rows:
    """An adapter that learns from less than the run did, with the run's own learner and as many steps as a site took."""
    batch = subject.experiment.learner.options["batch_size"]
    taken = [
        2 * -(-sum(item.round <= number for item in items) // batch)
        for items in subject.successes.values()
        for number in range(1, (subject.folder.last_round() or 0) + 1)
    ]
    steps = sum(taken) // len(subject.makers)
    random = generator("probe", "few")
    rows = {}
    for each, said in (
        (FEW // len(subject.makers), f"{FEW} successes in all"),
        (FEW, f"{FEW} successes of each world"),
    ):
        found = []
        for _ in range(DRAWS):
            chosen = [
                items[int(index)]
                for items in subject.successes.values()
                for index in random.permutation(len(items))[:each]
            ]
            found.append(learned(subject, tasks, chosen, max(1, round(steps * batch / len(chosen)))))
        rows[f"{said}, {steps} steps"] = {
            world: float(np.mean([shares[world] for shares in found])) for world in subject.makers
        }
    everything = every(subject.successes.values())
    ten = [everything[int(index)] for index in random.permutation(len(everything))[: 10 * batch]]
    rows["ten optimiser steps"] = learned(subject, tasks, ten, epochs=1)
    return rows


def learned(subject: Subject, tasks: int, trajectories: list[Trajectory], epochs: int) -> Shares:
    part = subject.experiment.learner
    learner = build("learner", part.model_copy(update={"options": {**part.options, "epochs": epochs}}), subject.model)
    adapter, _ = learner.learn(Lesson(subject.before, trajectories, stream("probe", "few")))
    return subject.success(subject.policy(adapter), "test", tasks)


def decisions(subject: Subject, tasks: int) -> Rows:
    """On the states that the imperfect player comes to in held-out tasks, the same ones before and after."""
    rows: Rows = {}
    for when, adapter in (("before", subject.before), ("after", subject.after)):
        policy = subject.policy(adapter)
        shares = {}
        for label, make_world in subject.makers.items():
            world = make_world()
            states = [state for task in held_out(world, "test", tasks) for state in states_of(world, task.id)]
            shares[label] = optimal_share(policy, subject.model.chat, world, states)
        rows[f"optimal decisions, {when}"] = shares
    return rows


def player(subject: Subject, tasks: int) -> Rows:
    """Five games of each task, and one in which every situation is taken wrongly."""
    rows: Rows = {"the imperfect player": {}, "its likeliest actions": {}}
    for label, make_world in subject.makers.items():
        world = make_world()
        chosen = [task.id for task in held_out(world, "test", tasks)]
        draws = [(task, generator(stream("player", task, attempt)).random) for task in chosen for attempt in range(5)]
        rows["the imperfect player"][label] = float(np.mean([play(world, *game)[1] for game in draws]))
        rows["its likeliest actions"][label] = float(np.mean([play(world, task, lambda: 1.0)[1] for task in chosen]))
    return rows


PROBES = {probe.__name__: probe for probe in (openings, sampling, constants, few, decisions, player)}


def replies_of(trajectory: Trajectory) -> Iterable[list[int]]:
    """The ids of each reply."""
    reply: list[int] = []
    for token, by_agent in zip(trajectory.token_ids, trajectory.train_mask, strict=True):
        if by_agent:
            reply.append(token)
        elif reply:
            yield reply
            reply = []
    if reply:
        yield reply


def every(groups: Iterable[list[Trajectory]]) -> list[Trajectory]:
    return [item for group in groups for item in group]


def mean(shares: Shares) -> float:
    return sum(shares.values()) / len(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", nargs="+", choices=PROBES, default=list(PROBES))
    parser.add_argument("--tasks", type=int, default=200, help="Test tasks of each world.")
    parser.add_argument("--json", type=Path, help="Write the numbers to this file, or add them to it.")
    given = parser.parse_args()
    subject = Subject(given.run)
    torch.set_num_threads(subject.experiment.model.options.get("threads") or torch.get_num_threads())
    rows: Rows = {
        "before": subject.success(subject.policy(subject.before), "test", given.tasks),
        "after": subject.success(subject.policy(subject.after), "test", given.tasks),
    }
    gain = mean(rows["after"]) - mean(rows["before"])
    worlds = list(subject.makers)
    print("| % of the test | " + " | ".join(worlds) + " | macro | share of the gain |")
    print("| --- |" + " ---: |" * (len(worlds) + 2))

    def show(name: str, shares: Shares) -> None:
        share = "" if "decisions" in name else f"{100 * (mean(shares) - mean(rows['before'])) / gain:.0f} %"
        numbers = " | ".join(f"{100 * shares[world]:.1f}" for world in worlds)
        print(f"| {name} | {numbers} | {100 * mean(shares):.1f} | {share} |", flush=True)

    for name in ("before", "after"):
        show(name, rows[name])
    for probe in given.only:
        for name, shares in PROBES[probe](subject, given.tasks).items():
            rows[name] = shares
            show(name, shares)
    if given.json:
        add_to(given.json, {"run": given.run.name, "tasks": given.tasks, "weights": weights_digest()}, rows)


def add_to(file: Path, about: dict[str, Any], rows: Rows) -> None:
    """Probes take long and may be run one by one: a file about the same thing keeps its other rows."""
    known = json.loads(file.read_text()) if file.exists() else {}
    kept = known["rows"] if {key: known.get(key) for key in about} == about else {}
    file.write_text(json.dumps({**about, "rows": {**kept, **rows}}, indent=1) + "\n")


def weights_digest() -> str:
    return hashlib.sha256((weights_folder() / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
