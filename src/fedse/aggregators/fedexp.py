"""FedExP: the less the changes agree, the further the server goes (Jhunjhunwala, Wang and Joshi, arXiv 2301.09604).

    change_k = adapter_k - broadcast
    step     = gain * sum_k |change_k|^2 / (2 K (|mean change|^2 + epsilon)), at least 1 and at most `longest`
    next     = broadcast + step * mean change

Changes that are alike give a step of 1, the plain mean; K changes that are orthogonal give K / 2, because their mean is
short: it keeps 1 / K of each. All tensors together have one step, A and B alike. The paper has no upper bound; here it is K,
which adds the changes up, because changes that cancel each other would otherwise give a step without end.
The step needs the mean change and the mean of the squared lengths alone: under a secure sum each site adds its own square.
Cost: traffic as `mean`; the server reads each update twice and holds one update and three vectors in float64.
Helps: where sites learn different things, so that the mean undoes most of what each of them learned (cosines near 0 in the
report). A long step on two factors also lengthens the products of one client's B with another's A, which nobody trained:
that is what `longest` is for. With `factors: in_turn` there are none, as in `rolora`, and with `factors: B`, as in
`ffa_lora`, at the prices told there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedse.adapters.packing import pack
from fedse.adapters.plan import IN_TURN, Plan, TensorPlan
from fedse.adapters.summed_update import SummedUpdate
from fedse.aggregators.mean import Mean, weighted_mean
from fedse.aggregators.rule import EQUAL_UPDATES, SUM_AND_SQUARES, Result
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


class FedExPOptions(PluginOptions):
    """A gain of 1 is the paper's step."""

    gain: float = Field(default=1.0, gt=0)
    """Factor of the step before it is bounded."""
    longest: float | None = Field(default=None, ge=1)
    """Largest step, in mean changes; null is the number of updates, which makes it their sum."""
    epsilon: float = Field(default=0.0, ge=0)
    """Added to the square of the mean change, which keeps steps short where hardly anything changed."""
    factors: Literal["both", "B", "in_turn"] = "both"
    """Which factors clients train and send: both in every round, B alone, or B in odd rounds and A in even ones."""


_PLANS: dict[str, Plan] = {"both": TensorPlan(), "B": TensorPlan(trained="B", sent="B"), "in_turn": IN_TURN}


class FedExP(Mean):
    """The mean change, taken further the less the clients' changes agree."""

    Options = FedExPOptions

    def __init__(self, **options: Any) -> None:
        self.options = FedExPOptions.model_validate(options)
        self.plan = _PLANS[self.options.factors]
        # A larger gain goes further even where all agree.
        self.promises = frozenset({SUM_AND_SQUARES, *([EQUAL_UPDATES] if self.options.gain <= 2 else [])})

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        broadcast = pack(self.asked(state)).astype(np.float64)
        mean = weighted_mean(updates, self.weights(updates))
        step = self.step(broadcast, mean, updates)
        vector = mean if step == 1 else broadcast + step * (mean - broadcast)
        return self.following(state, vector.astype(np.float32)), {"server_step": step}

    def step(self, broadcast: np.ndarray, mean: np.ndarray, updates: Sequence[StoredUpdate]) -> float:
        """How many mean changes to go."""
        clients, squares = _squares(broadcast, updates)
        below = 2 * clients * (float(np.sum((mean - broadcast) ** 2)) + self.options.epsilon)
        wanted = self.options.gain * squares / below if below > 0 else 1.0
        return max(1.0, min(wanted, self.options.longest or clients))


def _squares(broadcast: np.ndarray, updates: Sequence[StoredUpdate]) -> tuple[int, float]:
    """How many clients there are, and the sum of the squared lengths of their changes."""
    if isinstance(summed := updates[0], SummedUpdate):
        return summed.clients, summed.clients * summed.mean_square
    return len(updates), sum(float(np.sum((update.read() - broadcast) ** 2)) for update in updates)
