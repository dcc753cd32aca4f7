"""Targets that are distributions: every pass gives the loss and the gradient that autograd gives of the written-out loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fedse.networks.training import passes
from fedse.networks.training.cross_entropy import linear_cross_entropy, linear_likely_tokens
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_llama import PackedLlama
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.passes import PackedPass, PaddedPass, Pass, RecordedPass, pass_for
from fedse.networks.training.soft_targets import SoftTargets, joined
from fedse.networks.training.token_packing import Example
from padded_reference import TARGETS, adapted, conversations
from small_llamas import NETWORKS


@pytest.mark.parametrize("most_logits", [1, 7 * 50, 2**27], ids=["row by row", "7 rows", "at once"])
def test_loss_and_gradient_with_further_targets_are_torchs(most_logits: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(33, 16, requires_grad=True)
    weight, bias = torch.randn(50, 16), torch.randn(50)
    targets, importance = torch.randint(0, 50, (33,)), torch.randn(33)
    # Some stand twice in a row, and some are the target itself.
    ids, factors = torch.randint(0, 50, (33, 9)), torch.randn(33, 9)
    ids[:, 0] = targets
    exact = hidden.detach().double().requires_grad_()
    likely = torch.log_softmax(torch.nn.functional.linear(exact, weight.double(), bias.double()), -1)
    wanted = (
        -(likely.gather(1, targets[:, None]).squeeze(1) * importance).sum() - (likely.gather(1, ids) * factors).sum()
    )
    (wanted_gradient,) = torch.autograd.grad(3 * wanted, exact)
    found = linear_cross_entropy(hidden, weight, bias, targets, importance, (ids, factors), most_logits)
    (gradient,) = torch.autograd.grad(3 * found, hidden)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert (gradient - wanted_gradient).norm() < 1e-5 * wanted_gradient.norm()
    top = likely.topk(4)
    told_ids, told = linear_likely_tokens(hidden.detach(), weight, bias, 4, most_logits)
    assert torch.equal(told_ids, top.indices) and torch.allclose(told.double(), top.values.detach(), atol=1e-5)


def test_without_further_targets_not_a_bit_is_another() -> None:
    """Imitation's gradient, in the operations and the order that it has always had."""
    torch.manual_seed(0)
    hidden = torch.randn(33, 16, requires_grad=True)
    weight, targets, importance = torch.randn(50, 16), torch.randint(0, 50, (33,)), torch.rand(33)
    likely = torch.log_softmax(torch.nn.functional.linear(hidden.detach(), weight), -1, dtype=torch.float32)
    loss = torch.zeros(()) - (likely.gather(1, targets[:, None]).squeeze(1) * importance).sum()
    error = likely.exp().scatter_add_(1, targets[:, None], torch.full((33, 1), -1.0))
    found = linear_cross_entropy(hidden, weight, None, targets, importance)
    (gradient,) = torch.autograd.grad(found, hidden)
    assert torch.equal(found, loss) and torch.equal(gradient, (error @ weight) * importance[:, None])


def all_log_probabilities(network: Any, examples: Sequence[Example]) -> torch.Tensor:
    """Places x tokens, by the network's own forward pass, one example at a time."""
    found = []
    for example in examples:
        ids = torch.from_numpy(example.ids)
        logits = network(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
        found.append(torch.log_softmax(logits, -1)[torch.from_numpy(example.train[1:])])
    return torch.cat(found)


def padded(network: Any) -> Pass:
    vector = LoraVector(network)
    return PaddedPass(vector, PaddedNetwork(network, vector))


def packed(network: Any) -> Pass:
    through = pass_for(network, checkpointing=False)
    assert type(through) is PackedPass
    return through


class NothingIsRecorded:
    def __init__(self, *_: object) -> None: ...

    def add_gradient(self, *_: object) -> Any:
        raise AssertionError("soft targets were given to a graph")


def recorded(network: Any) -> Pass:
    """As on a GPU, without graphs."""
    vector = LoraVector(network)
    return RecordedPass(vector, PackedLlama(network, vector))


@pytest.mark.parametrize(("make", "opening"), [(packed, 9), (packed, 0), (padded, 0), (recorded, 9)])
def test_a_pass_draws_each_place_to_its_distribution(make: Any, opening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PassGraphs", NothingIsRecorded)
    network = adapted(NETWORKS["qwen2"](), TARGETS["all"])
    examples = conversations(40, 25, 60, 12)
    through = make(network)
    likely = all_log_probabilities(network, examples)
    random = np.random.default_rng(5)
    weights = random.standard_normal(len(likely)).astype(np.float32)
    soft = SoftTargets(
        random.integers(0, likely.shape[1], (len(likely), 6)), random.random((len(likely), 6)).astype(np.float32)
    )
    targets = torch.from_numpy(np.concatenate([example.ids[1:][example.train[1:]] for example in examples]))
    loss = -(likely.gather(1, targets[:, None]).squeeze(1) * torch.from_numpy(weights)).sum()
    loss = loss - (likely.gather(1, torch.from_numpy(soft.ids)) * torch.from_numpy(soft.weights)).sum()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradient = torch.cat([item.flatten() for item in torch.autograd.grad(loss, parameters, retain_graph=True)])
    through.vector.gradient.zero_()
    found, tokens = through.add_gradient(examples, opening, weights, soft)
    assert found.item() == pytest.approx(loss.item(), rel=1e-5) and tokens > 0
    assert (through.vector.gradient - gradient).norm() < 1e-5 * gradient.norm()
    told = through.likely_tokens(examples, opening, 5)
    top = likely.detach().topk(5)
    assert np.allclose(told.log_probs, top.values.numpy(), atol=2e-5)
    assert np.allclose(likely.detach().gather(1, torch.from_numpy(told.ids)).numpy(), top.values.numpy(), atol=2e-5)


def test_one_token_with_all_the_weight_is_that_token() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    examples = conversations(40, 25)
    targets = np.concatenate([example.ids[1:][example.train[1:]] for example in examples])
    found = []
    for make in (packed, padded):
        for importance, weight in ((1.0, 0.0), (0.0, 1.0), (0.25, 0.75)):
            through = make(network)
            through.vector.gradient.zero_()
            soft = SoftTargets(targets[:, None], np.full((len(targets), 1), weight, dtype=np.float32))
            through.add_gradient(examples, 0, importance, soft)
            found.append(through.vector.gradient.clone())
    for other in found[1:]:
        assert (other - found[0]).norm() < 1e-5 * found[0].norm()


def test_targets_of_several_examples_are_filled_up_with_tokens_that_count_nothing() -> None:
    wide = SoftTargets(np.array([[4, 5, 6]]), np.array([[0.5, 0.25, 0.25]], dtype=np.float32))
    both = joined([SoftTargets.none(2), wide])
    assert both is not None and both.ids.tolist() == [[0, 0, 0], [0, 0, 0], [4, 5, 6]]
    assert both.weights.tolist() == [[0, 0, 0], [0, 0, 0], [0.5, 0.25, 0.25]]
    assert joined([SoftTargets.none(2), SoftTargets.none(1)]) is None
