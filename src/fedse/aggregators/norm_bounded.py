"""The mean of changes that are shortened to a common bound (Sun and others, arXiv 1911.07963).

    change_k = adapter_k - broadcast
    next     = broadcast + mean_k change_k * min(1, c / || change_k ||)          c = `bound`, or the median of the norms

Cost: traffic as `mean`; the server reads everything twice, 4 operations for each value, and holds three vectors.
Helps: no single client can move the adapter further than its share of the bound, and unlike `median`, `trimmed_mean` and
`krum` it does not punish a client for having another world: the first guard to try.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedse.adapters.packing import pack
from fedse.aggregators.rule import EQUAL_UPDATES, Result, Rule
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState, Vector


class NormBoundedOptions(PluginOptions):
    """How far a client may go."""

    bound: float | None = Field(default=None, gt=0)
    """Largest norm of a client's change; when not set, the median of the round's norms."""


class NormBounded(Rule):
    """The mean of changes that are shortened to a common bound."""

    Options = NormBoundedOptions

    def __init__(self, bound: float | None = None) -> None:
        self.bound = NormBoundedOptions(bound=bound).bound
        # A bound of one's own may shorten even updates that all agree.
        self.promises = frozenset({EQUAL_UPDATES} if self.bound is None else ())

    def combine(self, state: ServerState, updates: Sequence[StoredUpdate]) -> Result:
        broadcast = pack(self.asked(state))
        change, numbers = bounded_mean_change(broadcast, updates, self.bound)
        return self.following(state, (broadcast + change).astype(np.float32)), numbers

    def advice(self, clients: int) -> str:
        return bounded_by_itself("norm_bounded", clients, self.bound)


def bounded_by_itself(rule: str, clients: int, bound: float | None) -> str:
    """A sentence for the user where the bound of the only client of a round is its own length."""
    if clients > 1 or bound is not None:
        return ""
    return (
        f"{rule} compares the clients of a round with each other, and one sends in a round, so it bounds nothing: set "
        "aggregator.bound, or ask more clients."
    )


def bounded_mean_change(
    broadcast: Vector, updates: Sequence[StoredUpdate], bound: float | None
) -> tuple[npt.NDArray[np.float64], dict[str, float]]:
    """The mean of changes, none of them longer than the bound or the median of their norms, and what the report tells of it.

    One update is in memory at a time.
    """
    norms = np.array([np.linalg.norm(update.read().astype(np.float64) - broadcast) for update in updates])
    limit = float(np.median(norms)) if bound is None else bound
    factors = np.minimum(1.0, np.divide(limit, norms, out=np.ones_like(norms), where=norms > 0))
    total = np.zeros(len(broadcast))
    for factor, update in zip(factors, updates, strict=True):
        total += factor * (update.read().astype(np.float64) - broadcast)
    return total / len(updates), {"norm_bound": limit, "shortened": float((factors < 1).sum())}
