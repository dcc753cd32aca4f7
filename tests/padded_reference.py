"""What the learner's passes must equal: the network's own forward pass, padded, with all logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import peft
import torch

from fedse.adapters.plan import PERSONAL, RESIDUAL, factor, in_part
from fedse.networks.swap import load_adapter, read_adapter, train_only
from fedse.networks.training.token_packing import Example
from fedse.types import Adapter

TARGETS = {
    "all": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "some": ["q_proj", "v_proj", "down_proj"],
}


def adapted(base: Any, targets: list[str]) -> Any:
    """A frozen network with LoRA in which no tensor is the zero, the one or the absent bias it began as."""
    base.requires_grad_(False)
    network = peft.get_peft_model(
        base, peft.LoraConfig(r=4, lora_alpha=12, target_modules=targets, task_type="CAUSAL_LM")
    )
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=source).to(parameter)
    return network.eval()


def further_pairs(network: Any, *frozen: str) -> Adapter:
    """Give each module a residual and a personal pair of other ranks, and return the whole adapter. Tensors whose names
    hold one of `frozen` are not trained."""
    shared = read_adapter(network, Adapter({}))
    tensors = dict(shared.tensors)
    random = np.random.default_rng(1)
    for part, rank in ((RESIDUAL, 3), (PERSONAL, 2)):
        for name, tensor in shared.tensors.items():
            shape = (rank, tensor.shape[1]) if factor(name) == "A" else (tensor.shape[0], rank)
            tensors[in_part(name, part)] = 0.1 * random.standard_normal(shape).astype(np.float32)
    adapter = Adapter(tensors, frozen=frozenset(name for name in tensors if any(piece in name for piece in frozen)))
    load_adapter(network, adapter)
    train_only(network, adapter)
    return adapter


def conversations(*lengths: int, opening: int = 9, vocabulary: int = 96, seed: int = 0) -> list[Example]:
    """Random tokens; all begin alike, and the agent speaks now and then after that."""
    random = np.random.default_rng(seed)
    start = random.integers(0, vocabulary, opening)
    examples = []
    for length in lengths:
        ids = np.concatenate([start, random.integers(0, vocabulary, length - opening)])
        train = np.concatenate([np.zeros(opening + 1, dtype=bool), random.random(length - opening - 1) < 0.4])
        train[-1] = True
        examples.append(Example(ids, train))
    return examples


def padded_loss(network: Any, examples: Sequence[Example]) -> torch.Tensor:
    """Summed negative log-likelihood of the agent's tokens."""
    device = next(network.parameters()).device
    longest = max(map(len, examples))
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full((len(examples), longest), -100)
    attention = torch.zeros(len(examples), longest, dtype=torch.long)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = torch.from_numpy(example.ids)
        labels[row, : len(example)] = torch.from_numpy(np.where(example.train, example.ids, -100))
        attention[row, : len(example)] = 1
    logits = network(input_ids=ids.to(device), attention_mask=attention.to(device), use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten().to(device), reduction="sum"
    )


def padded_gradient(network: Any, examples: Sequence[Example]) -> tuple[float, torch.Tensor]:
    """Loss, and the gradient of all trained LoRA tensors as one vector."""
    loss = padded_loss(network, examples)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters)
    return loss.item(), torch.cat([gradient.flatten().float() for gradient in gradients])
