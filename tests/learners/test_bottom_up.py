"""BuPO's phase: the loss of an inner layer's policy first, the usual one afterwards, and the entropy of every layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bandit_world import bandit

import fedse
from fedse.errors import BadInput
from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.models.tiny import Tiny
from fedse.networks.swap import load_adapter
from fedse.networks.training.passes import pass_for
from fedse.networks.training.wanted import alone
from fedse.objectives.bottom_up import LAYER_ENTROPIES
from fedse.objectives.cases import units_of
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Lesson, Trajectory
from fedse.worlds.maze import Maze

LAYER = 2


@pytest.fixture(scope="module")
def deep() -> Any:
    """With a layer above and one below the one that is trained."""
    return Tiny(width=32, layers=3, device="cpu", threads=1)


@pytest.fixture(scope="module")
def explored(deep: Any) -> list[Trajectory]:
    """Attempts at one task, of which two did well, with probabilities that some whole network is said to have drawn with."""
    shown = Demonstrations(4).trajectories("c", "maze", Maze(rules="bare", observation_length="brief"), deep.chat, 0)
    return [
        replace(item, task="x", rewards={"world": number % 2}, log_probs=(-3.0,) * item.agent_tokens)
        for number, item in enumerate(shown)
    ]


@pytest.fixture(scope="module")
def start(deep: Any) -> Adapter:
    initial, random = deep.initial_adapter(0), np.random.default_rng(4)
    tensors = {
        name: (held + 0.02 * random.standard_normal(held.shape)).astype("float32")
        for name, held in initial.tensors.items()
    }
    return replace(initial, tensors=tensors)


def layer_of(name: str) -> int:
    """Counted from 1."""
    return int(name.split("layers.")[1].split(".")[0]) + 1


def log_probabilities(model: Any, adapter: Adapter, examples: Any, layer: int, normed: bool) -> list[torch.Tensor]:
    """Of the agent's tokens, by the network's own forward pass and what it tells of a layer."""
    load_adapter(model.network, adapter)
    base, found = model.network.get_base_model(), []
    for example in examples:
        ids = torch.from_numpy(example.ids)
        stream = model.network(input_ids=ids[None], output_hidden_states=True).hidden_states[layer][0, :-1]
        logits = base.lm_head(base.model.norm(stream) if normed else stream)
        chosen = torch.log_softmax(logits, -1).gather(1, ids[1:, None]).squeeze(1)
        found.append(chosen[torch.from_numpy(example.train[1:])])
    return found


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
def test_a_step_follows_autograds_gradient_of_the_written_out_loss_through_the_truncated_network(
    deep: Any, explored: list[Trajectory], start: Adapter, normed: bool
) -> None:
    learner = GroupPolicyGradient(
        deep, bottom_up={"layer": LAYER, "rounds": 3, "norm": normed}, loss_type="bnpo", beta=0.3, learning_rate=0.02,
        schedule="constant", max_grad_norm=1e9, epochs=2, epsilon=0.4,
    )  # fmt: skip
    through = pass_for(deep.network, checkpointing=False)
    through.begin(start)
    lesson = Lesson(start, [], 1, explored)
    cases = learner.cases(lesson)
    fitting = learner.fitting(through, cases, lesson, 10_000)
    assert alone(fitting.step())
    moved = through.result(like=start)
    assert alone(fitting.step()) and not alone(fitting.step())
    found = through.vector.gradient.clone()

    examples = [example for unit in units_of(cases, deep.context) for example in unit.examples]
    with torch.no_grad():
        before = log_probabilities(deep, start, examples, LAYER, normed)
    now = log_probabilities(deep, moved, examples, LAYER, normed)
    losses, clipped = [], 0
    for example, own, old in zip(examples, now, before, strict=True):
        ratio = torch.exp(own - old)
        limited = torch.clamp(ratio, 0.6, 1.4)
        clipped += int((ratio * example.credit > limited * example.credit).sum())
        losses.append(-torch.min(ratio * example.credit, limited * example.credit))
        losses.append(0.3 * (torch.exp(old - own) - (old - own) - 1))
    loss = torch.cat(losses).sum() / sum(map(len, now))
    parameters = [parameter for parameter in deep.network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    wanted = torch.cat(
        [
            (torch.zeros_like(own) if gradient is None else gradient).flatten()
            for own, gradient in zip(parameters, gradients, strict=True)
        ]
    )
    assert 0 < clipped < sum(map(len, now)), "or the bounds were not tried"
    assert (found - wanted).norm() < 1e-5 * wanted.norm()
    for name, tensor in through.result(like=start).tensors.items():
        assert np.array_equal(tensor, start.tensors[name]) is (layer_of(name) > LAYER), name


def test_after_the_phase_it_is_the_plain_rule_bit_for_bit_and_the_reports_tell_of_every_layer(
    deep: Any, explored: list[Trajectory], start: Adapter
) -> None:
    settings: dict[str, Any] = {"learning_rate": 5e-3, "imitation": 0.5, "epochs": 1}
    phased = GroupPolicyGradient(deep, bottom_up={"layer": LAYER, "rounds": 2}, **settings)
    played_by = [replace(item, adapter=start.digest()) for item in explored]
    lesson = Lesson(start, explored[:1], 1, played_by)
    learned: dict[int, Any] = {}
    for round in (2, 3):
        phased.enter(round)
        learned[round] = phased.learn(lesson)
    plain, told = GroupPolicyGradient(deep, **settings).learn(lesson)  # type: ignore[misc]
    (inner, in_phase), (after, after_phase) = learned[2], learned[3]
    assert after.digest() == plain.digest() != inner.digest()
    entropies = dict.fromkeys(LAYER_ENTROPIES[:3])
    assert {name: value for name, value in after_phase.items() if name not in entropies} == told
    assert entropies.keys() <= in_phase.keys() <= set(GroupPolicyGradient.metrics) | told.keys()
    assert all(in_phase[name] == after_phase[name] for name in entropies), "both lessons begin with the same adapter"
    assert {"entropy", "sampler_gap"} & in_phase.keys() == set() and {"entropy", "sampler_gap"} <= told.keys()

    # The last layer's policy is the network's, and one of eight or fewer cases is looked at as a whole.
    load_adapter(deep.network, start)
    surprises = []
    examples = [example for unit in units_of(phased.cases(lesson)[:4], deep.context) for example in unit.examples]
    for example in examples:
        with torch.no_grad():
            logits = deep.network(input_ids=torch.from_numpy(example.ids)[None]).logits[0, :-1]
        likely = torch.log_softmax(logits, -1)[torch.from_numpy(example.train[1:])]
        surprises.append(-(likely.exp() * likely).sum(-1))
    assert in_phase[LAYER_ENTROPIES[2]] == pytest.approx(torch.cat(surprises).mean().item(), rel=1e-5)


def test_adapters_that_learn_together_tell_of_their_own_layers(
    deep: Any, explored: list[Trajectory], start: Adapter
) -> None:
    learner = GroupPolicyGradient(deep, bottom_up={"layer": LAYER, "rounds": 1}, tokens_at_once=50_000, epochs=1)
    lessons = [Lesson(start, [], 1, explored), Lesson(deep.initial_adapter(0), [], 1, explored)]
    together = learner.learn_together(lessons)
    for lesson, both in zip(lessons, together, strict=True):
        alone = learner.learn(lesson)
        assert both is not None and alone is not None and both[1] == pytest.approx(alone[1])
        assert both[0].digest() == alone[0].digest()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"restart": True}, "`bottom_up` prepares lower layers for later rounds, and with `restart: true` those begin"),
        ({"bottom_up": {"layer": 0, "rounds": 1}}, "greater than or equal to 1"),
        ({"bottom_up": {"layer": 1}}, r"bottom_up\.rounds: this key is missing"),
    ],
)
def test_a_phase_that_could_not_be_is_refused_when_the_file_is_read(
    settings: dict[str, Any], sentence: str, tiny_file: Path
) -> None:
    whole = {"name": "group_policy_gradient", "bottom_up": {"layer": 1, "rounds": 1}, **settings}
    with pytest.raises(BadInput, match=sentence):
        fedse.load_experiment(tiny_file, [f"learner={json.dumps(whole)}"])


def test_a_layer_that_is_not_below_the_last_and_a_network_without_inner_layers_are_refused_before_the_first_round(
    deep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"highest that is not the last layer of fedse/tiny is 2, and 3 is asked for"):
        GroupPolicyGradient(deep, bottom_up={"layer": 3, "rounds": 1})
    monkeypatch.setattr(deep.network.config, "attention_dropout", 0.1)
    with pytest.raises(BadInput, match="networks of Llama's family"):
        GroupPolicyGradient(deep, bottom_up={"layer": 1, "rounds": 1})
    GroupPolicyGradient(deep)


@pytest.mark.slow
def test_a_run_that_was_stopped_in_the_phase_ends_the_same_and_finds_the_lever(tmp_path: Path) -> None:
    def experiment(rounds: int) -> fedse.Experiment:
        made = bandit("group_policy_gradient", rounds=rounds, exploration={"tasks": 8, "attempts": 4})
        made["learner"]["bottom_up"] = {"layer": 1, "rounds": 2}
        return fedse.Experiment(**made)

    whole = fedse.run(experiment(3), tmp_path / "whole")
    fedse.run(experiment(1), tmp_path / "stopped")
    resumed = fedse.run(experiment(3), tmp_path / "stopped")
    assert resumed.adapter.digest() == whole.adapter.digest()
    reports = [
        json.loads((whole.folder / "rounds" / f"{round:04}" / "report.json").read_text())["clients"]["one"]
        for round in (1, 2, 3)
    ]
    assert ["entropy" in report["metrics"] for report in reports] == [False, False, True]
    for report in reports:
        assert set(LAYER_ENTROPIES[:2]) <= report["metrics"].keys()
        assert LAYER_ENTROPIES[2] not in report["metrics"] and "other" not in report["metrics"]
    shares = [report["counts"]["successes"] / report["counts"]["explored"] for report in reports]
    assert shares[0] < 0.8 and shares[-1] > 0.85, shares
