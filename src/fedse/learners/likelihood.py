"""The training loop behind `Imitation`: batches, schedule, clipping, AdamW, and nothing that outlives the round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedse.learners.packing import examples_of, group, opening_of, parts_of
from fedse.learners.passes import Pass
from fedse.types import Trajectory


def fit(
    through: Pass,
    trajectories: Sequence[Trajectory],
    context: int,
    key: int,
    *,
    epochs: int,
    learning_rate: float,
    schedule: str,
    weight_decay: float,
    batch: int,
    tokens_at_once: int,
    clip: float,
    proximal: float = 0.0,
) -> dict[str, float]:
    """Train the LoRA parameters in place. Trajectories longer than the context are cut to it."""
    examples = examples_of(trajectories, context)
    opening = opening_of(examples) if through.shares_opening else 0
    random = np.random.Generator(np.random.Philox(key=key))
    batches = [chosen for _ in range(epochs) for chosen in group(examples, batch, random)]
    vector = through.vector
    vector.take()
    optimiser = torch.optim.AdamW([vector.values], lr=learning_rate, weight_decay=weight_decay, fused=True)
    broadcast = [vector.values.detach().clone()] if proximal else []
    losses = torch.zeros(len(batches), device=vector.values.device)
    real = needed = computed = 0
    for number, chosen in enumerate(batches):
        for setting in optimiser.param_groups:
            setting["lr"] = learning_rate * _factor(schedule, number / len(batches))
        vector.gradient.zero_()
        importance = 1.0 / sum(example.agent_tokens for example in chosen)
        for part in parts_of(chosen, opening, tokens_at_once):
            loss, tokens = through.add_gradient(part, opening, importance)
            # On the device: reading each number would make the host wait for the GPU.
            losses[number] += loss
            computed += tokens
            real += sum(map(len, part))
            needed += opening + sum(len(example) - opening for example in part)
        pull_back([vector.values], broadcast, proximal)
        torch.nn.utils.clip_grad_norm_([vector.values], clip)
        optimiser.step()
    vector.put_back()
    per_epoch = max(1, len(losses) // epochs)
    return {
        "loss": float(losses[-per_epoch:].mean()),
        "first_loss": float(losses[:per_epoch].mean()),
        "steps": float(len(losses)),
        "tokens": float(real),
        "padded_share": (computed - needed) / computed,
        "shared_share": (real - needed) / real,
    }


@torch.no_grad()
def pull_back(parameters: Sequence[Any], broadcast: Sequence[torch.Tensor], proximal: float) -> None:
    """Add the gradient of FedProx's proximal / 2 * || parameters - broadcast ||^2, if there is anything to keep to."""
    for parameter, anchor in zip(parameters, broadcast, strict=False):
        parameter.grad.add_(parameter - anchor, alpha=proximal)


def _factor(schedule: str, progress: float) -> float:
    return 0.5 * (1.0 + float(np.cos(np.pi * progress))) if schedule == "cosine" else 1.0
