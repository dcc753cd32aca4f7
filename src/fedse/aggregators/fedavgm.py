"""FedAvgM: momentum on the mean change (Hsu, Qi and Brown, arXiv 1909.06335).

    change = mean_k adapter_k - broadcast
    m      = momentum * m + change                  next = broadcast + learning_rate * m
    with `nesterov`                                 next = broadcast + learning_rate * (momentum * m + change)

The second is the outer step of DiLoCo (arXiv 2311.08105; its rate is 0.7, its momentum 0.9).
Cost: traffic as `mean`; the server holds four vectors and stores one (m) with each round.
Helps: where the changes of successive rounds point the same way but each is noisy. With momentum it goes on moving for
1 / (1 - momentum) times the mean change, so a smaller `learning_rate` keeps the pace of the plain mean.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fedse.aggregators.rule import EQUAL_UPDATES, ONLY_THE_SUM
from fedse.aggregators.server_optimiser import Change, ServerOptimiser, remembered
from fedse.plugins import PluginOptions
from fedse.types import Tensors, Vector


class FedAvgMOptions(PluginOptions):
    """A learning rate of 1 without momentum is the plain mean."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Share of the last round's step that is taken again."""
    learning_rate: float = Field(default=1.0, gt=0)
    """Factor of the step."""
    nesterov: bool = False
    """Look ahead: add this round's change once more beyond what the momentum holds of it."""


class FedAvgM(ServerOptimiser):
    """Momentum on the mean change of the adapters."""

    Options: type[FedAvgMOptions] = FedAvgMOptions

    def __init__(self, **options: float | bool | None) -> None:
        self.options = self.Options.model_validate(options)
        # Without memory the first plain step at rate 1 is the mean change itself.
        plain = self.options.learning_rate == 1 and not self.options.nesterov
        self.promises = frozenset({EQUAL_UPDATES, ONLY_THE_SUM} if plain else {ONLY_THE_SUM})

    def step(self, change: Change, memory: Tensors) -> tuple[Change, dict[str, Vector]]:
        momentum = self.options.momentum * remembered(memory, "momentum", change) + change
        step = self.options.momentum * momentum + change if self.options.nesterov else momentum
        return self.options.learning_rate * step, {"momentum": momentum.astype(np.float32)}
