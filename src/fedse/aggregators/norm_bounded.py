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
from pydantic import Field

from fedse.adapters.packing import pack
from fedse.aggregators.rule import EQUAL_UPDATES, Result, Rule
from fedse.plugins import PluginOptions
from fedse.protocols import StoredUpdate
from fedse.types import ServerState


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
        norms = np.array([np.linalg.norm(update.read().astype(np.float64) - broadcast) for update in updates])
        bound = float(np.median(norms)) if self.bound is None else self.bound
        factors = np.minimum(1.0, np.divide(bound, norms, out=np.ones_like(norms), where=norms > 0))
        total = np.zeros(len(broadcast))
        for factor, update in zip(factors, updates, strict=True):
            total += factor * (update.read().astype(np.float64) - broadcast)
        vector = (broadcast + total / len(updates)).astype(np.float32)
        return self.following(state, vector), {"norm_bound": bound, "shortened": float((factors < 1).sum())}
