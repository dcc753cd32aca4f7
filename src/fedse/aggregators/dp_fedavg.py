"""DP-FedAvg: the next adapter hardly depends on any single site (McMahan and others, arXiv 1710.06963).

    each site's update counts with chance q, in secret
    change_k = adapter_k - broadcast, cut to a length of `clip`
    mean     = ( sum over those that count of change_k  +  N(0, (noise_multiplier * clip)^2) ) / (q * sites)
    next     = broadcast + learning_rate * mean

The divisor is a number of the experiment and not of those who sent: one site more or less changes the sum by `clip` at most.
Epsilon bounds what all broadcast adapters together tell about everything that one site ever sent (Poisson sampling, privacy
loss distributions), as if every site had answered every round. It trusts the server, which sees single updates.
Cost: traffic as `mean`; the server reads each update twice and draws a normal number for each value.
Helps: with hundreds of sites. The noise on the mean is about sqrt(values) * noise_multiplier / (q * sites) times as long as
the longest mean change, so a handful of sites would send each other noise alone: that is refused when a run begins.
The mean of many short lessons is shorter still: a `learning_rate` above 1 makes up for it. It comes after the noise, so that
epsilon is the same, and lengthens the noise too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from fedse.adapters.packing import pack
from fedse.adapters.plan import TensorPlan
from fedse.aggregators.noisy_mean import NoisyMeanOptions, drowned
from fedse.aggregators.rule import Result, Rule
from fedse.privacy.accountant import enough_noise, epsilon
from fedse.privacy.noise import NoiseKey, SecretRandom
from fedse.protocols import StoredUpdate
from fedse.types import ServerState

_PASSING = NoiseKey.passing()
"""For means outside of runs, which nobody repeats after a crash."""


class DpFedAvgOptions(NoisyMeanOptions):
    """Noise and its price, and how many sites count."""

    sampling_rate: float = Field(default=1.0, gt=0, le=1)
    """Chance of each site's update to count in a round, drawn in secret by the server. The others have learned in vain."""
    learning_rate: float = Field(default=1.0, gt=0)
    """Factor of the server's step, noise and all."""


class DpFedAvg(Rule):
    """The mean of changes that are cut to a length, with noise: epsilon bounds what is told about one site."""

    Options = DpFedAvgOptions
    draws_noise: ClassVar[bool] = True

    def __init__(self, **options: float | str | bool | None) -> None:
        self.options = DpFedAvgOptions.model_validate(options)
        self.plan = TensorPlan() if self.options.factors == "both" else TensorPlan(trained="B", sent="B")
        self.sites: int | None = None
        """How many are asked in a round; outside of runs, those who sent something."""
        self.key = _PASSING

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        told, broadcast = self.options, pack(self.asked(state)).astype(np.float64)
        contents = (update.client.encode() + b"\0" + update.read().tobytes() for update in updates)
        random = SecretRandom(self.key.of_mean(state.round + 1, state.adapter.digest(), contents))
        chances = dict(zip(sorted(update.client for update in updates), random.uniform(len(updates)), strict=True))
        total, shortened = np.zeros(len(broadcast)), 0
        for update in updates:
            change = update.read().astype(np.float64) - broadcast
            norm = float(np.linalg.norm(change))
            shortened += norm > told.clip
            if chances[update.client] < told.sampling_rate:
                total += change * min(1.0, told.clip / norm) if norm else 0.0
        total += random.normal(len(total)) * (told.noise_multiplier * told.clip)
        vector = broadcast + told.learning_rate * total / self.expected(self.sites or len(updates))
        numbers = {"epsilon": self.spent(state.round + 1), "shortened": float(shortened)}
        return self.following(state, vector.astype(np.float32)), numbers

    def expected(self, sites: int) -> float:
        """How many sites count in a round, of so many that are asked."""
        return self.options.sampling_rate * sites

    def spent(self, rounds: int) -> float:
        """Epsilon after so many rounds."""
        return epsilon(self.options.noise_multiplier, self.options.sampling_rate, rounds, self.options.delta)

    def enough_noise(self, rounds: int, budget: float) -> float:
        """A multiplier with which so many rounds keep within a budget."""
        return enough_noise(self.options.sampling_rate, rounds, self.options.delta, budget)

    def drowned(self, sites: int, values: int) -> str:
        """Why the noise leaves nothing of a mean of so many values, with the numbers; nothing where it leaves something."""
        told = self.options
        enough = math.ceil(math.sqrt(values) * told.noise_multiplier / told.sampling_rate)
        return drowned(told, self.expected(sites), told.noise_multiplier * told.clip, values, enough)
