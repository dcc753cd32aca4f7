"""DP-SGD's step: each trajectory's gradient is cut to a length, and noise of that scale is added to their sum.

    in step t each trajectory is drawn with chance q
    g_t = ( sum over those drawn of  grad_i * min(1, C / |grad_i|)  +  N(0, (sigma C)^2) ) / batch_size

The divisor is a number of the experiment, not the number of trajectories drawn, which is nobody's business. Which ones are
drawn is as secret as the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedse.fitting.loop import Fitting
from fedse.networks.training.passes import Pass
from fedse.objectives.cases import Case, CreditedExample, Unit
from fedse.privacy.noise import SecretRandom
from fedse.stopwatch import during


class PrivateFitting(Fitting):
    """One adapter's round under noise."""

    def __init__(
        self,
        through: Pass,
        cases: Sequence[Case],
        context: int,
        *,
        secret: bytes,
        noise_multiplier: float,
        sampling_rate: float,
        steps: int,
        **settings: Any,
    ) -> None:
        self._random = SecretRandom(secret)
        self._sampling_rate, self._planned = sampling_rate, steps
        self._noise = noise_multiplier
        self._divisor = settings["batch_size"]
        super().__init__(through, cases, context, 0, **settings)

    def _shared_opening(self, examples: Sequence[CreditedExample]) -> int:
        del examples  # One trajectory must not change how another is computed.
        return 0

    def _drawn(
        self, units: Sequence[Unit], epochs: float, batch_size: int, random: np.random.Generator
    ) -> list[list[Unit]]:
        del epochs, batch_size, random  # It is seeded by what everybody knows.
        rate = self._sampling_rate
        return [
            [unit for unit, chance in zip(units, self._random.uniform(len(units)), strict=True) if chance < rate]
            for _ in range(self._planned)
        ]

    def _parts(self, chosen: Sequence[Unit], tokens_at_once: int) -> list[list[CreditedExample]]:
        del tokens_at_once  # A gradient of its own for each trajectory.
        return [list(unit.examples) for unit in chosen]

    def _add_gradient(self, parts: Sequence[Sequence[CreditedExample]]) -> None:
        gradient = self._vector.gradient
        total = torch.zeros_like(gradient)
        for part in parts:
            gradient.zero_()
            self._pass(part, 1.0 / sum(example.agent_tokens for example in part))
            gradient.nan_to_num_(0.0, 0.0, 0.0)  # One that is not finite counts nothing, and spoils no other.
            total.add_(gradient * (self._max_norm / gradient.norm()).clamp(max=1.0))
        with during("noise"):
            drawn = self._random.normal(gradient.numel()) * (self._noise * self._max_norm)
            total.add_(torch.from_numpy(drawn).to(gradient))
        gradient.copy_(total.div_(self._divisor))

    def _limit(self) -> None:
        """Its length is mostly the noise's."""

    def metrics(self) -> dict[str, float]:
        """Neither loss nor tokens: they depend on trajectories and have no noise."""
        return {"steps": float(self._steps)}
