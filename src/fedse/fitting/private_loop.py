"""DP-SGD's step: each trajectory's gradient is cut to a length, and noise of that scale is added to their sum.

    in step t each trajectory is drawn with chance q
    g_t = ( sum over those drawn of  grad_i * min(1, C / |grad_i|)  +  N(0, (sigma C)^2) ) / batch_size

The divisor is a number of the experiment, not the number of trajectories drawn, which is nobody's business. Which ones are
drawn is as secret as the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch

from fedse.fitting.loop import Fitting
from fedse.networks.training.passes import Pass
from fedse.networks.training.wanted import Asking
from fedse.objectives.cases import Case, CreditedExample, Unit
from fedse.privacy.noise import SecretRandom
from fedse.stopwatch import during

_MOST_NUMBERS = 2**27
"""Of the gradients that are held at once; half a gigabyte in float32."""


class PrivateFitting(Fitting):
    """One adapter's round under noise. Trajectories go through the network in packs, and each has a gradient of its own."""

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

    def _drawn(
        self, units: Sequence[Unit], epochs: float, batch_size: int, random: np.random.Generator
    ) -> list[list[Unit]]:
        del epochs, batch_size, random  # It is seeded by what everybody knows.
        self._unit_of = {id(example): number for number, unit in enumerate(units) for example in unit.examples}
        rate = self._sampling_rate
        return [
            [unit for unit, chance in zip(units, self._random.uniform(len(units)), strict=True) if chance < rate]
            for _ in range(self._planned)
        ]

    def _parts(self, chosen: Sequence[Unit], tokens_at_once: int) -> list[list[CreditedExample]]:
        """Whole trajectories of like lengths: each takes as much room as the longest beside it."""
        most = max(1, _MOST_NUMBERS // self._vector.values.numel())
        packs: list[list[Unit]] = []
        for unit in sorted(chosen, key=len):
            if not packs or len(packs[-1]) == most or (len(packs[-1]) + 1) * len(unit) > tokens_at_once:
                packs.append([])
            packs[-1].append(unit)
        return [[example for unit in pack for example in unit.examples] for pack in packs]

    def _add_gradient(self, parts: Sequence[Sequence[CreditedExample]]) -> Asking[None]:
        """Through its own pass: what goes through a joint one has no gradient of each trajectory."""
        yield from ()
        gradient = self._vector.gradient
        total = torch.zeros_like(gradient)
        for part in parts:
            units = [list(own) for _, own in groupby(part, key=lambda example: self._unit_of[id(example)])]
            found = self._through.unit_gradients(units)
            found.nan_to_num_(0.0, 0.0, 0.0)  # One that is not finite counts nothing, and spoils no other.
            total.addmv_(found.T, (self._max_norm / found.norm(dim=1)).clamp(max=1.0))
        with during("noise"):
            drawn = self._random.normal(gradient.numel()) * (self._noise * self._max_norm)
            total.add_(torch.from_numpy(drawn).to(gradient))
        gradient.copy_(total.div_(self._divisor))

    def _limit(self) -> None:
        """Its length is mostly the noise's."""

    def metrics(self) -> dict[str, float]:
        """Neither loss nor tokens: they depend on trajectories and have no noise."""
        return {"steps": float(self._steps)}
