"""FedAdam: the server takes Adam's step along the mean change (Reddi and others, arXiv 2003.00295).

    change = mean_k adapter_k - broadcast
    m = beta1 * m + (1 - beta1) * change            v = beta2 * v + (1 - beta2) * change^2
    next = broadcast + learning_rate * m / (sqrt(v) + tau)

m begins at 0 and v at tau^2, as in the paper; there is no correction for the beginning.
Cost: traffic as `mean`; the server holds six vectors and stores two (m, v) with each round.
Helps: where entries of the adapter change on very different scales. The step of an entry is about `learning_rate` whatever
the clients' own rate was, so it must be tuned to the adapter; equal updates do not give the adapter they hold.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.aggregators.rule import ONLY_THE_SUM
from fedse.aggregators.server_optimiser import Change, ServerOptimiser, remembered
from fedse.plugins import PluginOptions
from fedse.types import Tensors, Vector


class FedAdamOptions(PluginOptions):
    """The moments' rates are the paper's."""

    learning_rate: float = Field(default=1e-3, gt=0)
    """About the largest step of an entry in one round."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Memory of the mean of changes."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Memory of the mean of squared changes."""
    tau: float = Field(default=1e-3, gt=0)
    """Changes much smaller than this are not enlarged."""


class FedAdam(ServerOptimiser):
    """Adam on the mean change of the adapters. A variant overrides `second`."""

    Options = FedAdamOptions
    promises = frozenset({ONLY_THE_SUM})

    def __init__(self, **options: float) -> None:
        self.options = FedAdamOptions.model_validate(options)

    def step(self, change: Change, memory: Tensors) -> tuple[Change, dict[str, Vector]]:
        chosen = self.options
        first = chosen.beta1 * remembered(memory, "first_moment", change) + (1 - chosen.beta1) * change
        second = self.second(remembered(memory, "second_moment", change, chosen.tau**2), change**2)
        step = chosen.learning_rate * first / (np.sqrt(second) + chosen.tau)
        return step, {"first_moment": first.astype(np.float32), "second_moment": second.astype(np.float32)}

    def second(self, before: Change, square: Change) -> Change:
        """The second moment after the squared change of this round."""
        return self.options.beta2 * before + (1 - self.options.beta2) * square
