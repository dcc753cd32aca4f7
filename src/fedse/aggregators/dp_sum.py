"""DP-FedAvg without a server that is trusted: sites cut their changes and add parts of the noise before a secure sum.

    at site k:   sent_k = change_k, cut to a length of `clip`  +  N(0, (noise_multiplier * clip)^2 / (K - colluding))
    at the hub:  next   = broadcast + (1 / K) * sum over all K sites of sent_k

The noise of any K - colluding sites together is that of `dp_fedavg` on the sum, so the others may tell the hub their parts,
or leave them out. A site that learned nothing adds its part of the noise all the same and counts: the sum does not tell.
Epsilon bounds what all sums together tell about everything that one site ever learned; without a secure sum it is refused.
Shares of noise under secure aggregation: Kairouz and others, arXiv 2102.06387, who have discrete noise; here normal noise is
rounded to the steps of the sum.
Cost: as `mean` with a secure sum, and a normal number for each value at each site.
Helps: where `dp_fedavg` does, with hundreds of sites, that do not trust the server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fedse.adapters.plan import TensorPlan
from fedse.aggregators.mean import Mean
from fedse.aggregators.noisy_mean import NoisyMeanOptions, drowned
from fedse.aggregators.rule import EQUAL_UPDATES, ONLY_THE_SUM, Result
from fedse.privacy.accountant import enough_noise, epsilon
from fedse.privacy.noise import NoiseKey
from fedse.privacy.noise_share import NoiseShare
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


class DpSumOptions(NoisyMeanOptions):
    """Noise and its price, and from whom it is kept."""

    colluding: int = Field(default=1, ge=0)
    """Sites that may tell the hub their parts of the noise, or add none: the others' is enough. Each site knows its own
    part, so that with 0 epsilon holds against no site of the sum."""


class DpSum(Mean):
    """The mean of changes that sites cut and put noise on themselves, under a secure sum: nobody sees a single update."""

    Options = DpSumOptions
    promises = frozenset({EQUAL_UPDATES, ONLY_THE_SUM})
    draws_noise: ClassVar[bool] = True
    noise_at_sites: ClassVar[bool] = True

    def __init__(self, **options: float | str | bool | None) -> None:
        self.options = DpSumOptions.model_validate(options)
        self.plan = TensorPlan() if self.options.factors == "both" else TensorPlan(trained="B", sent="B")

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        following, _ = super().combine(state, updates)
        return following, {"epsilon": self.spent(state.round + 1)}

    def share(self, key: NoiseKey) -> NoiseShare:
        """What a site does before it masks."""
        told = self.options
        return NoiseShare(told.clip, told.noise_multiplier, told.colluding, key, self._within)

    def _within(self, rounds: int) -> bool:
        return self.options.epsilon is None or self.spent(rounds) <= self.options.epsilon

    def spent(self, rounds: int) -> float:
        """Epsilon after so many rounds."""
        return epsilon(self.options.noise_multiplier, 1.0, rounds, self.options.delta)

    def enough_noise(self, rounds: int, budget: float) -> float:
        """A multiplier with which so many rounds keep within a budget."""
        return enough_noise(1.0, rounds, self.options.delta, budget)

    def drowned(self, sites: int, values: int) -> str:
        """Why the noise leaves nothing of a mean of so many values, with the numbers; nothing where it leaves something."""
        told = self.options
        noise = told.noise_multiplier * told.clip * math.sqrt(sites / (sites - told.colluding))
        half = told.colluding / 2
        enough = math.ceil(half + math.sqrt(half**2 + values * told.noise_multiplier**2))
        return drowned(told, sites, noise, values, enough)
