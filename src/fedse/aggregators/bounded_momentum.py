"""Momentum on a mean of changes that are shortened to a common bound: `fedavgm` (Hsu, Qi and Brown, arXiv 1909.06335;
DiLoCo, arXiv 2311.08105) behind the guard of `norm_bounded` (Sun and others, arXiv 1911.07963).

    change = mean_k change_k * min(1, c / || change_k ||)                        c = `bound`, or the median of the norms
    m      = momentum * m + change                  next = broadcast + learning_rate * m
    with `nesterov`                                 next = broadcast + learning_rate * (momentum * m + change)

Cost: traffic as `mean`; the server reads everything twice, holds five vectors and stores one (m) with each round.
Helps: where momentum pays and a site may be bad. What one site adds to the momentum of a round is its share of the bound at
most, where momentum on a plain mean goes on for 1 / (1 - momentum) rounds with whatever a single site sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedse.aggregators.fedavgm import FedAvgM, FedAvgMOptions
from fedse.aggregators.norm_bounded import bounded_by_itself, bounded_mean_change
from fedse.aggregators.rule import EQUAL_UPDATES, ONLY_THE_SUM
from fedse.aggregators.server_optimiser import Change
from fedse.protocols import StoredUpdate
from fedse.types import Vector


class BoundedMomentumOptions(FedAvgMOptions):
    """How far a client may go, and the step of `fedavgm`."""

    bound: float | None = Field(default=None, gt=0)
    """Largest norm of a client's change; when not set, the median of the round's norms."""


class BoundedMomentum(FedAvgM):
    """Momentum on a mean of changes that are shortened to a common bound."""

    Options = BoundedMomentumOptions
    options: BoundedMomentumOptions

    def __init__(self, **options: float | bool | None) -> None:
        super().__init__(**options)
        # Lengths are those of single updates, and a bound of one's own may shorten even updates that all agree.
        self.promises -= {ONLY_THE_SUM} if self.options.bound is None else {ONLY_THE_SUM, EQUAL_UPDATES}

    def mean_change(self, broadcast: Vector, updates: Sequence[StoredUpdate]) -> tuple[Change, dict[str, float]]:
        return bounded_mean_change(broadcast, updates, self.options.bound)

    def advice(self, clients: int) -> str:
        return bounded_by_itself("bounded_momentum", clients, self.options.bound)
