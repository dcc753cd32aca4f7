"""The training loop behind `Imitation`: length-grouped batches, a masked loss, and nothing that outlives the round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fedse.errors import BadInput
from fedse.types import Trajectory

_WINDOW = 16
"""Batches that are sorted by length together: enough to keep padding low, few enough to keep the order random."""


def fit(
    network: Any,
    trajectories: Sequence[Trajectory],
    context: int,
    key: int,
    *,
    epochs: int,
    learning_rate: float,
    schedule: str,
    weight_decay: float,
    batch: int,
    micro_batch: int | None,
    clip: float,
    proximal: float = 0.0,
) -> dict[str, float]:
    """Train the LoRA parameters in place. Trajectories longer than the context are cut to it."""
    examples = [(list(item.token_ids[:context]), list(item.train_mask[:context])) for item in trajectories]
    examples = [(ids, mask) for ids, mask in examples if any(mask[1:])]
    if not examples:
        raise BadInput(
            f"no trajectory has a reply within the model's context of {context} tokens: nothing to learn from."
        )
    random = np.random.Generator(np.random.Philox(key=key))
    batches = [chosen for _ in range(epochs) for chosen in group(examples, batch, random)]
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)
    broadcast = [parameter.detach().clone() for parameter in parameters] if proximal else []
    losses: list[float] = []
    padded = real = 0
    network.train()
    try:
        for number, chosen in enumerate(batches):
            for setting in optimiser.param_groups:
                setting["lr"] = learning_rate * _factor(schedule, number / len(batches))
            optimiser.zero_grad(set_to_none=True)
            agent_tokens = sum(sum(mask[1:]) for _, mask in chosen)
            total = 0.0
            for part in _micro_batches(chosen, micro_batch or batch):
                ids, mask, attention = collate(part, next(network.parameters()).device)
                loss = masked_loss(network, ids, mask, attention) / agent_tokens
                torch.autograd.backward(loss)
                total += float(loss.detach())
                padded += int(attention.numel() - attention.sum())
                real += int(attention.sum())
            pull_back(parameters, broadcast, proximal)
            torch.nn.utils.clip_grad_norm_(parameters, clip)
            optimiser.step()
            losses.append(total)
    finally:
        network.eval()
    per_epoch = max(1, len(losses) // epochs)
    return {
        "loss": float(np.mean(losses[-per_epoch:])),
        "first_loss": float(np.mean(losses[:per_epoch])),
        "steps": float(len(losses)),
        "tokens": float(real),
        "padded_share": padded / (padded + real),
    }


@torch.no_grad()
def pull_back(parameters: Sequence[Any], broadcast: Sequence[torch.Tensor], proximal: float) -> None:
    """Add the gradient of FedProx's proximal / 2 * || parameters - broadcast ||^2, if there is anything to keep to."""
    for parameter, anchor in zip(parameters, broadcast, strict=False):
        parameter.grad.add_(parameter - anchor, alpha=proximal)


def _factor(schedule: str, progress: float) -> float:
    return 0.5 * (1.0 + float(np.cos(np.pi * progress))) if schedule == "cosine" else 1.0


Example = tuple[list[int], list[bool]]


def group(examples: Sequence[Example], batch: int, random: np.random.Generator) -> Iterator[list[Example]]:
    """One epoch: shuffled, sorted by length within windows, cut into batches, the batches shuffled again."""
    order = random.permutation(len(examples))
    batches: list[list[Example]] = []
    for start in range(0, len(order), _WINDOW * batch):
        window = sorted(order[start : start + _WINDOW * batch], key=lambda index: len(examples[index][0]))
        batches.extend([examples[index] for index in window[at : at + batch]] for at in range(0, len(window), batch))
    for position in random.permutation(len(batches)):
        yield batches[position]


def _micro_batches(batch: list[Example], size: int) -> Iterator[list[Example]]:
    for start in range(0, len(batch), size):
        yield batch[start : start + size]


def collate(examples: Sequence[Example], device: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, train mask and attention mask, padded on the right."""
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    mask = torch.zeros(len(examples), longest, dtype=torch.bool)
    attention = torch.zeros(len(examples), longest, dtype=torch.long)
    for row, (tokens, train) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = torch.tensor(train)
        attention[row, : len(tokens)] = 1
    return ids.to(device), mask.to(device), attention.to(device)


def masked_loss(network: Any, ids: torch.Tensor, mask: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """Summed negative log-likelihood of the agent's tokens, each predicted from everything before it."""
    logits = network(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    chosen = mask[:, 1:]
    return torch.nn.functional.cross_entropy(logits[chosen].float(), ids[:, 1:][chosen], reduction="sum")
