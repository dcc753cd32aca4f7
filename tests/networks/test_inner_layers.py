"""What an inner layer says: probabilities, gradients and entropies are those of the network without the layers above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from fedse.errors import BadInput
from fedse.networks.training import passes
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.packed_llama import PackedLlama
from fedse.networks.training.padded_network import PaddedNetwork
from fedse.networks.training.passes import PackedPass, PaddedPass, Pass, RecordedPass, inner_layers, pass_for
from fedse.networks.training.token_packing import Example
from padded_reference import TARGETS, adapted, conversations, further_pairs
from small_llamas import SHAPE

LAYERS = SHAPE | {"num_hidden_layers": 3}
NETWORKS: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LAYERS)),
    "qwen3, tied": lambda: Qwen3ForCausalLM(Qwen3Config(**LAYERS, head_dim=16, tie_word_embeddings=True)),
}
EXAMPLES = conversations(40, 25, 60, 12)


def in_the_open(network: Any, examples: Sequence[Example], layer: int, normed: bool) -> torch.Tensor:
    """Log-probabilities of all tokens in the agent's places: what transformers tells of a layer, and the output layer."""
    base, found = network.get_base_model(), []
    for example in examples:
        told = network(input_ids=torch.from_numpy(example.ids)[None], use_cache=False, output_hidden_states=True)
        stream = told.hidden_states[layer][0, :-1]
        logits = base.lm_head(base.model.norm(stream) if normed else stream)
        found.append(torch.log_softmax(logits, -1)[torch.from_numpy(example.train[1:])])
    return torch.cat(found)


def gradient_in_the_open(network: Any, layer: int, normed: bool, weights: Any) -> tuple[torch.Tensor, torch.Tensor]:
    likely = in_the_open(network, EXAMPLES, layer, normed)
    targets = torch.from_numpy(np.concatenate([example.ids[1:][example.train[1:]] for example in EXAMPLES]))
    loss = -(likely.gather(1, targets[:, None]).squeeze(1) * torch.from_numpy(weights)).sum()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pieces = [(torch.zeros_like(own) if item is None else item) for own, item in zip(parameters, found, strict=True)]
    return loss, torch.cat([piece.flatten() for piece in pieces])


def above(through: Pass, network: Any, layer: int) -> torch.Tensor:
    """Which entries of the vector belong to layers above this one."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = []
    for parameter in through.vector.parameters:
        number = int(names[id(parameter)].split("layers.")[1].split(".")[0])
        found.append(torch.full((parameter.numel(),), number >= layer))
    return torch.cat(found)


class NothingIsRecorded:
    def __init__(self, *_: object) -> None: ...

    def add_gradient(self, *_: object) -> Any:
        raise AssertionError("a pass through an inner layer was given to a graph")


def recorded(network: Any) -> Pass:
    """As on a GPU, without graphs."""
    vector = LoraVector(network)
    return RecordedPass(vector, PackedLlama(network, vector))


MAKERS: dict[str, Callable[[Any], Pass]] = {
    "packed": lambda network: pass_for(network, checkpointing=False),
    "checkpointing": lambda network: pass_for(network, checkpointing=True),
    "recorded": recorded,
}


@pytest.mark.parametrize(("layer", "normed"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize(
    ("name", "make", "opening"),
    [("llama", "packed", 0), ("llama", "packed", 9), ("qwen3, tied", "checkpointing", 9), ("llama", "recorded", 9)],
)
def test_the_gradient_is_autograds_through_the_truncated_network(
    name: str, make: str, opening: int, layer: int, normed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "PassGraphs", NothingIsRecorded)
    network = adapted(NETWORKS[name](), TARGETS["all"])
    through = MAKERS[make](network)
    inner = through.inner(layer, normed)
    assert type(inner) is PackedPass and inner.vector is through.vector
    weights = np.random.default_rng(5).standard_normal(sum(item.agent_tokens for item in EXAMPLES)).astype(np.float32)
    loss, wanted = gradient_in_the_open(network, layer, normed, weights)
    through.vector.gradient.zero_()
    found, tokens = inner.add_gradient(EXAMPLES, opening, weights)
    gradient = through.vector.gradient
    assert found.item() == pytest.approx(loss.item(), rel=1e-5) and tokens == sum(map(len, EXAMPLES)) - 3 * opening
    assert (gradient - wanted).norm() < 1e-5 * wanted.norm()
    higher = above(through, network, layer)
    assert higher.any() and not gradient[higher].any() and gradient[~higher].any()
    likely = in_the_open(network, EXAMPLES, layer, normed).detach()
    targets = np.concatenate([example.ids[1:][example.train[1:]] for example in EXAMPLES])
    own = likely.numpy()[np.arange(len(targets)), targets]
    assert np.allclose(inner.log_probabilities(EXAMPLES, opening), own, atol=2e-5)


def test_further_pairs_are_truncated_too() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["some"])
    further_pairs(network, "residual")
    through = pass_for(network, checkpointing=False)
    weights = np.ones(sum(item.agent_tokens for item in EXAMPLES), dtype=np.float32)
    _, wanted = gradient_in_the_open(network, 2, False, weights)
    through.vector.gradient.zero_()
    through.inner(2, normed=False).add_gradient(EXAMPLES, 9, 1.0)
    assert (through.vector.gradient - wanted).norm() < 1e-5 * wanted.norm()


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("opening", [0, 9])
def test_the_entropy_of_every_layer_is_that_of_its_distribution_and_the_last_ones_the_networks(
    opening: int, normed: bool
) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    through = pass_for(network, checkpointing=False)
    found = through.layer_entropies(EXAMPLES, opening, normed)
    with torch.no_grad():
        # What transformers tells of the last layer has gone through the norm.
        likely = [in_the_open(network, EXAMPLES, layer, normed and layer < 3) for layer in (1, 2, 3)]
    wanted = torch.stack([-(item.exp() * item).sum(-1) for item in likely])
    assert found.shape == wanted.shape and np.allclose(found, wanted.numpy(), atol=2e-5)
    assert through.vector.gradient.norm() == 0
    assert wanted.mean(1).unique().numel() == 3


def test_what_has_no_inner_layers_says_so() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    through = pass_for(network, checkpointing=False)
    assert inner_layers(network) == 2
    for layer in (0, 3):
        with pytest.raises(ValueError, match=f"no layer {layer} below the last one of 3"):
            through.inner(layer, normed=False)
    vector = LoraVector(network)
    padded = PaddedPass(vector, PaddedNetwork(network, vector))
    with pytest.raises(BadInput, match=r"choose such a model, or leave `learner\.bottom_up` out"):
        padded.inner(1, normed=False)
    with pytest.raises(BadInput, match="inner layers"):
        padded.layer_entropies(EXAMPLES, 0, normed=False)
    network.config.attention_dropout = 0.1
    with pytest.raises(BadInput, match="inner layers"):
        inner_layers(network)
