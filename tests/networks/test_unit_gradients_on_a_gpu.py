"""On a GPU: units in one pass of a network of SmolLM2's width, in bfloat16 and in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fedse.networks.training.passes import PackedPass, RecordedPass, pass_for
from fedse.networks.training.token_packing import Example
from padded_reference import TARGETS, adapted, conversations, padded_gradient

pytestmark = pytest.mark.gpu

SHAPE: dict[str, Any] = {
    "vocab_size": 2000,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
}
LENGTHS = ((400,), (250, 90), (700,), (35,), (1500,))


def network(dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False))
    return adapted(made.to(dtype), TARGETS["all"]).to("cuda")


def units() -> list[list[Example]]:
    """Without the last token of the vocabulary."""
    examples = iter(conversations(*[length for unit in LENGTHS for length in unit], opening=30, vocabulary=1999))
    return [[next(examples) for _ in unit] for unit in LENGTHS]


def alone(net: Any) -> torch.Tensor:
    return torch.stack([padded_gradient(net, unit)[1] / sum(item.agent_tokens for item in unit) for unit in units()])


def distances(found: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    return (found - true).norm(dim=1) / true.norm(dim=1)


def test_in_bfloat16_each_is_as_near_to_the_true_gradient_as_a_pass_of_its_own() -> None:
    net = network(torch.bfloat16)
    through = pass_for(net, checkpointing=False)
    assert type(through) is RecordedPass
    # A recorded pass before and after: both read the same vector.
    examples = [example for unit in units() for example in unit]
    through.add_gradient(examples, 30, 1.0)
    before = through.vector.gradient.clone()
    found = through.unit_gradients(units())
    assert found.dtype == torch.float32 and torch.equal(through.vector.gradient, before)
    through.add_gradient(examples, 30, 1.0)
    assert distances(through.vector.gradient[None], 2 * before[None]).item() < 0.01
    padded = alone(net)
    true = alone(net.float())
    ours, theirs = distances(found, true), distances(padded, true)
    assert (ours < 1.4 * theirs).all() and ours.mean() < 1.1 * theirs.mean() and (theirs < 0.5).all(), (ours, theirs)


def test_in_float32_each_is_that_of_a_pass_of_its_own() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    net = network(torch.float32)
    through = pass_for(net, checkpointing=False)
    assert type(through) is PackedPass
    assert (distances(through.unit_gradients(units()), alone(net)) < 1e-4).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_that_is_not_finite_leaves_the_others_as_they_are(value: float) -> None:
    net = network(torch.bfloat16)
    through = pass_for(net, checkpointing=False)
    given = units()
    before = through.unit_gradients(given)
    for place in (3, 180, 699):
        given[2][0].ids[place] = 1999
    with torch.no_grad():
        net.get_base_model().get_input_embeddings().weight[1999] = value
    found = through.unit_gradients(given)
    assert not found[2].isfinite().all()
    others = np.array([0, 1, 3, 4])
    assert (distances(found[others], before[others]) < 0.01).all()
