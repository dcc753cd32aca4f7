"""The pass through a network's own forward: in its own precision, with kernels for any length, and leaving no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedse.networks.swap import lora_parameters
from fedse.networks.training.lora_vector import LoraVector
from fedse.networks.training.padded_network import PaddedNetwork
from padded_reference import TARGETS, adapted, conversations, padded_gradient
from small_llamas import NETWORKS

EXAMPLES = conversations(40, 25, 70)


def in_bfloat16() -> Any:
    """With an adapter in float32, as PEFT makes it."""
    network = adapted(NETWORKS["llama"](), TARGETS["all"]).to(torch.bfloat16)
    for parameter in lora_parameters(network).values():
        parameter.data = parameter.data.float()
    return network


def seen_by(network: Any) -> list[tuple[torch.dtype, torch.dtype, bool]]:
    """Precision of the first layer's inputs and adapter, and whether attention might be planned, at each pass."""
    (layer, *_) = (module for module in network.modules() if hasattr(module, "lora_A"))
    seen: list[tuple[torch.dtype, torch.dtype, bool]] = []

    def look(_: Any, inputs: Any) -> None:
        weight = layer.lora_A["default"].weight
        seen.append((inputs[0].dtype, weight.dtype, torch.backends.cuda.cudnn_sdp_enabled()))

    layer.register_forward_pre_hook(look)
    return seen


def test_in_bfloat16_the_adapter_computes_in_bfloat16_and_stays_in_float32() -> None:
    network = in_bfloat16()
    before = {name: parameter.detach().clone() for name, parameter in lora_parameters(network).items()}
    seen, vector = seen_by(network), LoraVector(network)
    padded = PaddedNetwork(network, vector)
    padded.add_gradient(EXAMPLES, 1.0)
    padded.log_probabilities(EXAMPLES)
    padded.likely_tokens(EXAMPLES, 2)
    PaddedNetwork(network, LoraVector(network), checkpointing=True).add_gradient(EXAMPLES, 1.0)
    assert seen == [(torch.bfloat16, torch.bfloat16, False)] * 5, "twice with checkpointing, and alike"
    assert torch.backends.cuda.cudnn_sdp_enabled()
    after = lora_parameters(network)
    assert all(after[name].dtype == torch.float32 and after[name].equal(before[name]) for name in before)
    _, wanted = padded_gradient(network.float(), EXAMPLES)
    assert (vector.gradient - wanted).norm() < 0.05 * wanted.norm()


def test_an_error_leaves_the_adapter_in_float32() -> None:
    network = in_bfloat16()
    padded = PaddedNetwork(network, LoraVector(network))
    network.get_base_model().lm_head.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        padded.add_gradient(EXAMPLES, 1.0)
    assert {parameter.dtype for parameter in lora_parameters(network).values()} == {torch.float32}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_nothing_is_left_training(checkpointing: bool) -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"]).train()
    padded = PaddedNetwork(network, LoraVector(network), checkpointing)
    trained: list[bool] = []
    layer = network.get_base_model().model.layers[0]
    layer.register_forward_pre_hook(lambda module, _: trained.append(module.training))
    padded.add_gradient(EXAMPLES, 1.0)
    assert trained[0] is checkpointing
    assert not any(module.training for module in network.modules())
    assert not any(getattr(module, "gradient_checkpointing", False) for module in network.modules())
