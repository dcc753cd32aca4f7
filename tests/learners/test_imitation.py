from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedse.errors import BadInput
from fedse.learners.imitation import Imitation
from fedse.learners.likelihood import group, pull_back
from fedse.models.table import Table
from fedse.rollouts.demonstrations import Demonstrations
from fedse.worlds.maze import Maze


@pytest.fixture(scope="module")
def demonstrations(tiny: Any) -> Any:
    world = Maze(rules="brief", observation_length="brief")
    return Demonstrations(12).trajectories("maze", "maze", world, tiny.chat, 0)


def test_learning_lowers_the_loss_and_repeats_bit_for_bit(tiny: Any, demonstrations: Any) -> None:
    learner = Imitation(tiny, learning_rate=3e-3, batch=2)
    start = tiny.initial_adapter(0)
    first, metrics = learner.learn(start, demonstrations, 1)
    second, again = learner.learn(start, demonstrations, 1)
    other, _ = learner.learn(start, demonstrations, 2)
    assert first.digest() == second.digest() != other.digest()
    assert metrics == again
    assert metrics["loss"] < metrics["first_loss"] - 0.2
    assert metrics["steps"] == 12


def test_only_lora_changes_and_the_base_stays_as_it_was(tiny: Any, demonstrations: Any) -> None:
    before = {name: value.clone() for name, value in tiny.network.named_parameters() if ".lora_" not in name}
    learned, _ = Imitation(tiny, learning_rate=1e-2).learn(tiny.initial_adapter(0), demonstrations[:4], 1)
    for name, value in tiny.network.named_parameters():
        if ".lora_" not in name:
            assert torch.equal(before[name], value), name
    assert all(np.abs(tensor).sum() > 0 for tensor in learned.tensors.values())


def test_one_step_equals_torchs_adamw_by_hand(tiny: Any, demonstrations: Any) -> None:
    """From B = 0 the first AdamW step moves each entry of B by the learning rate, in the direction of the gradient."""
    start = tiny.initial_adapter(0)
    learned, _ = Imitation(tiny, epochs=1, batch=12, learning_rate=1e-3, clip=1e9).learn(start, demonstrations, 1)
    for name, tensor in learned.tensors.items():
        if ".lora_B." in name:
            moved = np.abs(tensor[tensor != 0])
            assert np.isclose(moved, 1e-3, rtol=1e-2).mean() > 0.95, name


def test_a_cosine_schedule_ends_lower_than_a_constant_one(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    norms = {}
    for schedule in ("cosine", "constant"):
        learned, _ = Imitation(tiny, schedule=schedule, learning_rate=1e-3, batch=2).learn(start, demonstrations, 1)
        norms[schedule] = sum(float(np.abs(learned.tensors[n] - start.tensors[n]).sum()) for n in start.tensors)
    assert norms["cosine"] < norms["constant"]


def test_the_proximal_term_is_the_gradient_of_its_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    anchors = [torch.randn(3, 4, generator=draw), torch.randn(5, generator=draw)]
    ours = [torch.nn.Parameter(anchor + torch.randn(anchor.shape, generator=draw)) for anchor in anchors]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]

    def loss(parameters: Any) -> Any:
        return sum((parameter**3).sum() for parameter in parameters)

    loss(ours).backward()
    pull_back(ours, anchors, 0.7)
    away = sum(((parameter - anchor) ** 2).sum() for parameter, anchor in zip(theirs, anchors, strict=True))
    (loss(theirs) + 0.35 * away).backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_stronger_proximal_term_keeps_a_client_nearer_to_the_broadcast(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    away = []
    for proximal in (0.0, 10.0, 1000.0):
        learner = Imitation(tiny, epochs=4, batch=1, learning_rate=1e-3, schedule="constant", proximal=proximal)
        learned, _ = learner.learn(start, demonstrations[:3], 1)
        away.append(sum(float(((learned.tensors[n] - start.tensors[n]) ** 2).sum()) for n in start.tensors))
    assert away[0] > 1.5 * away[1] > 1.5**2 * away[2]


def test_batches_hold_everything_once_and_little_padding() -> None:
    random = np.random.default_rng(0)
    examples = [([index] * int(random.integers(50, 900)), [True]) for index in range(301)]
    batches = list(group(examples, 8, np.random.default_rng(1)))
    assert sorted(ids[0] for batch in batches for ids, _ in batch) == list(range(301))
    longest = sum(len(batch) * max(len(ids) for ids, _ in batch) for batch in batches)
    real = sum(len(ids) for ids, _ in examples)
    assert (longest - real) / longest < 0.10
    assert [ids[0] for ids, _ in batches[0]] != list(range(8))


def test_a_table_is_no_language_model() -> None:
    with pytest.raises(BadInput, match="needs a language model"):
        Imitation(Table())  # type: ignore[arg-type]
