"""TRL's GRPO loss with peft and autograd, the yardstick of `rules.py`: padded rows, as TRL has them, in our batches.

Old log-probabilities are scored once, before the first step, as TRL does where `num_iterations` is above 1. The loss is
that of `group_policy_gradient` with its defaults (`loss_type: dapo`, token ratios, no divergence), so both learn the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi
from typing import Any

import numpy as np
import torch

from fedse.learners.group_policy_gradient import GroupPolicyGradient
from fedse.networks.swap import load_adapter, read_adapter
from fedse.objectives.cases import CreditedExample, Unit, group, units_of
from fedse.types import Adapter, Lesson


class GrpoByHand:
    def __init__(self, model: Any, *, epochs: float, batch_size: int, learning_rate: float) -> None:
        self._model, self._epochs, self._batch, self._rate = model, int(epochs), batch_size, learning_rate
        self._rule = GroupPolicyGradient(model, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)

    def learn(self, lesson: Lesson) -> tuple[Adapter, dict[str, float]]:
        cases = self._rule.cases(lesson)
        units = units_of(cases, self._model.context)
        random = np.random.Generator(np.random.Philox(key=lesson.key))
        batches = [chosen for _ in range(self._epochs) for chosen in group(units, self._batch, random)]
        items = sum(unit.examples[0].agent_tokens for unit in units) / max(1.0, len(cases) / self._batch)
        load_adapter(self._model.network, lesson.start)
        trained = [parameter for parameter in self._model.network.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(trained, lr=self._rate, weight_decay=0.0, fused=True)
        with torch.no_grad():
            # The last batches are the epoch's, each unit once.
            old = {
                id(unit): values
                for chosen in batches[-(len(batches) // self._epochs) :]
                for unit, values in zip(chosen, self._log_probabilities(chosen), strict=True)
            }
        for number, chosen in enumerate(batches):
            for setting in optimiser.param_groups:
                setting["lr"] = self._rate * 0.5 * (1 + cos(pi * number / len(batches)))
            optimiser.zero_grad()
            self._loss(chosen, old, items).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
        tokens = float(sum(len(unit) for chosen in batches for unit in chosen))
        return read_adapter(self._model.network, like=lesson.start), {"tokens": tokens}

    def _loss(self, chosen: Sequence[Unit], old: dict[int, torch.Tensor], items: float) -> torch.Tensor:
        low, high = 1 - self._rule.options.epsilon, 1 + self._rule.options.epsilon
        loss = torch.zeros((), device=self._model.device)
        for unit, now in zip(chosen, self._log_probabilities(chosen), strict=True):
            ratio, credit = torch.exp(now - old[id(unit)]), unit.examples[0].credit
            loss = loss - torch.min(ratio * credit, torch.clamp(ratio, low, high) * credit).sum() / items
        return loss

    def _log_probabilities(self, chosen: Sequence[Unit]) -> list[torch.Tensor]:
        """Of the agent's tokens of each, in one padded batch."""
        examples: list[CreditedExample] = [unit.examples[0] for unit in chosen]
        longest, device = max(map(len, examples)), self._model.device
        ids = torch.zeros(len(examples), longest, dtype=torch.int64)
        there = torch.zeros(len(examples), longest, dtype=torch.int64)
        for row, example in enumerate(examples):
            ids[row, : len(example)], there[row, : len(example)] = torch.from_numpy(example.ids), 1
        ids, there = ids.to(device), there.to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=str(device).startswith("cuda")):
            logits = self._model.network(input_ids=ids, attention_mask=there, use_cache=False).logits
        found = []
        for row, example in enumerate(examples):
            at = torch.from_numpy(np.flatnonzero(example.train[1:])).to(device)
            likely = torch.log_softmax(logits[row, at].float(), dim=-1)
            found.append(likely.gather(1, ids[row, at + 1][:, None])[:, 0])
        return found
