"""A site's part of the noise on a secure sum, in which no server could put noise on anything before it is seen.

    K sites, of which h may tell others their part or leave it out: each adds N(0, (noise_multiplier * clip)^2 / (K - h))

The parts of the K - h others, the site's own among them, are together as long as the experiment says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedse.errors import SumRefused
from fedse.privacy.last_answer import asked_for
from fedse.privacy.noise import NoiseKey, SecretRandom
from fedse.types import RoundTask, Vector


@dataclass(frozen=True)
class NoiseShare:
    """What a site makes of its update before it is masked."""

    clip: float
    noise_multiplier: float
    colluding: int
    key: NoiseKey
    within: Callable[[int], bool]
    """Whether so many rounds keep within what may be spent."""

    def spread(self, sites: int) -> float:
        """Of the noise on each value, at each of so many sites."""
        return self.noise_multiplier * self.clip / math.sqrt(sites - self.colluding)

    def check(self, task: RoundTask) -> None:
        """Refuse a sum that would tell more than was agreed, before any work is done for it. Raises `SumRefused`."""
        if len(task.participants) <= self.colluding:
            raise SumRefused(
                f"the hub asks for a sum of {len(task.participants)} sites in {task.name}, of which {self.colluding} may "
                "work together: nobody's noise would be left, so nothing was done."
            )
        if not self.within(task.round):
            raise SumRefused(
                f"the hub asks for {task.name}, and after as many rounds more than aggregator.epsilon would be told about "
                "this site: nothing was done."
            )

    def hidden(self, vector: Vector | None, broadcast: Vector, task: RoundTask) -> npt.NDArray[np.float64]:
        """The adapter with its change cut and noise on it; noise alone from a site that learned nothing.

        In float64: beside a large value of the broadcast adapter, which the hub chooses, float32 would round noise away.
        """
        start = broadcast.astype(np.float64)
        change = np.zeros_like(start) if vector is None else vector.astype(np.float64) - start
        # One that is not finite must not show as such in the sum.
        change = np.nan_to_num(change, nan=0.0, posinf=0.0, neginf=0.0)
        norm = float(np.linalg.norm(change))
        secret = self.key.of_share(task.round, asked_for(task), change.tobytes())
        noise = SecretRandom(secret).normal(change.size) * self.spread(len(task.participants))
        cut = change * min(1.0, self.clip / norm) if norm else change
        return np.asarray(start + cut + noise)
