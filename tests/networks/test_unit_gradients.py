"""Units in one pass: the gradient of each is the one that autograd finds for it alone, and none touches another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from fedse.networks.training import packed_llama
from fedse.networks.training.passes import PackedPass, PaddedPass, pass_for
from fedse.networks.training.token_packing import Example
from fedse.networks.training.unit_rows import UnitRows
from padded_reference import TARGETS, adapted, conversations, further_pairs, padded_gradient
from small_llamas import NETWORKS

pytestmark = pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")

Units = Sequence[Sequence[Example]]


def units_of(*lengths: Sequence[int]) -> Units:
    """All begin alike, which must not be made use of."""
    examples = iter(conversations(*[length for unit in lengths for length in unit]))
    return [[next(examples) for _ in unit] for unit in lengths]


UNITS = units_of((40,), (25, 60), (150,), (12,), (33, 11, 20))


def alone(network: Any, units: Units) -> torch.Tensor:
    """A padded pass through the network's own layers for each."""
    return torch.stack(
        [padded_gradient(network, unit)[1] / sum(example.agent_tokens for example in unit) for unit in units]
    )


def assert_same(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape and found.dtype == torch.float32
    assert ((found - wanted).norm(dim=1) < tolerance * wanted.norm(dim=1)).all()
    torch.testing.assert_close(found.norm(dim=1), wanted.norm(dim=1), rtol=tolerance, atol=0.0)


def test_products_are_those_of_each_units_rows() -> None:
    counts = (3, 1, 7, 4)
    narrow, wide = torch.randn(15, 2, dtype=torch.float64), torch.randn(15, 5, dtype=torch.float64)
    narrow[4], wide[10] = torch.nan, torch.inf
    found = UnitRows.of(counts, torch.device("cpu")).products(narrow, wide)
    wanted = torch.stack([one.T @ other for one, other in zip(narrow.split(counts), wide.split(counts), strict=True)])
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert found[[0, 1, 3]].isfinite().all() and not found[2].isfinite().all()


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", ["llama", "llama, biases everywhere", "qwen3, tied"])
def test_each_gradient_is_that_of_the_unit_alone(name: str, targets: str) -> None:
    network = adapted(NETWORKS[name](), TARGETS[targets])
    through = pass_for(network, checkpointing=False)
    assert type(through) is PackedPass
    through.vector.gradient.fill_(3.0)
    found = through.unit_gradients(UNITS)
    assert_same(found, alone(network, UNITS))
    assert (through.vector.gradient == 3.0).all()
    assert_same(through.unit_gradients(UNITS[1:2]), found[1:2])


@pytest.mark.parametrize("frozen", [("lora_A.weight", "residual"), ("lora_B.",)])
def test_further_pairs_and_frozen_tensors_have_them_too(frozen: tuple[str, ...]) -> None:
    network = adapted(NETWORKS["qwen2"](), TARGETS["all"])
    further_pairs(network, *frozen)
    assert_same(pass_for(network, checkpointing=False).unit_gradients(UNITS), alone(network, UNITS), 5e-5)


def test_ways_to_save_memory_change_none(monkeypatch: pytest.MonkeyPatch) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["some"])
    wanted = alone(network, UNITS)
    assert_same(pass_for(network, checkpointing=True).unit_gradients(UNITS), wanted)
    monkeypatch.setattr(packed_llama, "_LARGE", 0)
    assert_same(pass_for(network, checkpointing=False).unit_gradients(UNITS), wanted)


def other_network() -> Any:
    """Without a packed pass."""
    config = GPT2Config(vocab_size=96, n_positions=256, n_embd=48, n_layer=2, n_head=4, tie_word_embeddings=False)
    return adapted(GPT2LMHeadModel(config), ["c_attn", "c_proj"])


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_networks_without_a_packed_pass_have_a_pass_for_each() -> None:
    network = other_network()
    through = pass_for(network, checkpointing=False)
    assert type(through) is PaddedPass
    through.vector.gradient.fill_(3.0)
    assert_same(through.unit_gradients(UNITS), alone(network, UNITS))
    assert (through.vector.gradient == 3.0).all()


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("kind", ["packed", "padded"])
def test_one_that_is_not_finite_leaves_the_others_as_they_are(kind: str, value: float) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"]) if kind == "packed" else other_network()
    through = pass_for(network, checkpointing=False)
    units = [[Example(np.minimum(item.ids, 94), item.train) for item in unit] for unit in UNITS]
    before = through.unit_gradients(units)
    units[2][0].ids[5] = 95
    with torch.no_grad():
        network.get_base_model().get_input_embeddings().weight[95] = value
    found = through.unit_gradients(units)
    assert not found[2].isfinite().all()
    others = [0, 1, 3, 4]
    assert_same(found[others], before[others])


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_in_bfloat16_they_are_as_near_to_the_true_ones_as_a_pass_for_each() -> None:
    network = adapted(NETWORKS["llama"]().to(torch.bfloat16), TARGETS["all"])
    through = pass_for(network, checkpointing=False)
    assert through.vector.values.dtype == torch.float32
    found = through.unit_gradients(UNITS)
    apart = torch.cat([through.unit_gradients([unit]) for unit in UNITS])
    true = alone(network.float(), UNITS)
    far, apart_far = ((item - true).norm(dim=1) / true.norm(dim=1) for item in (found, apart))
    assert (far < 0.1).all() and (far < 1.5 * apart_far + 0.01).all()
