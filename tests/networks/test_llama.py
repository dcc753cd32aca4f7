"""The reader of a Llama: what it finds is what the network holds, now and after its adapters have changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedse.networks.llama import Llama
from padded_reference import TARGETS, adapted, further_pairs
from small_llamas import NETWORKS


def deltas(network: Any) -> dict[int, torch.Tensor]:
    """What all adapters together add to each linear layer, as PEFT says, by the layer's weight."""
    return {
        id(module.base_layer.weight): sum(module.get_delta_weight(name) for name in module.active_adapters)
        for module in network.modules()
        if hasattr(module, "base_layer")
    }


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_every_linear_layer_is_read_once_with_the_pairs_on_it(name: str, targets: str) -> None:
    network = adapted(NETWORKS[name](), TARGETS[targets])
    llama = Llama(network)
    read = [*llama.linears(), llama.head]
    plain = {
        id(item.weight)
        for path, item in network.named_modules()
        if type(item) is torch.nn.Linear and "lora" not in path
    }
    assert len(read) == len(plain) and {id(linear.weight) for linear in read} == plain
    for pairs in (1, 3):
        if pairs > 1:
            further_pairs(network)
        added = deltas(network)
        assert {id(linear.weight) for linear in read if linear.pairs} == added.keys()
        for linear in read:
            assert linear.adapted == (id(linear.weight) in added) and linear.all_active
            if linear.adapted:
                assert len(linear.pairs) == pairs
                mine = sum(pair.up @ pair.down * pair.scale for pair in linear.pairs)
                assert torch.equal(mine, added[id(linear.weight)])


def test_a_pair_that_takes_no_part_or_is_merged_is_noticed() -> None:
    network = adapted(NETWORKS["llama"](), TARGETS["all"])
    llama = Llama(network)
    further_pairs(network)
    network.base_model.set_adapter("default")
    assert not any(linear.all_active for linear in llama.linears())
    assert all(len(linear.pairs) == 1 for linear in llama.linears())
    network.base_model.set_adapter(["default", "residual", "personal"])
    assert all(linear.all_active for linear in llama.linears())
    network.merge_adapter()
    assert not any(linear.all_active for linear in llama.linears())
