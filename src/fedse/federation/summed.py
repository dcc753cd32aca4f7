"""The server's half of a secure sum: masked updates are added up as they come, and only the sum of all can be read.

No single update can be checked or compared, neither here nor by an aggregator. What `checks` bounds of an update is bounded
of the mean of all: a mean beyond a bound holds at least one update beyond it.

Where sites take their own updates out of the mean, what is left must not be a single other one: a sum to which fewer than
three added something is void then, and so is one of which nobody can tell who did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedse.adapters.packing import length, pack
from fedse.adapters.plan import TensorPlan
from fedse.adapters.rounding import encoded_form
from fedse.adapters.summed_update import SummedUpdate
from fedse.federation.checks import CheckOptions, refusal
from fedse.federation.exchange import Replies, Summing
from fedse.federation.usual import unusual
from fedse.privacy.fixed_point import FixedPoint, Residues
from fedse.protocols import StoredUpdate
from fedse.types import Adapter, ClientUpdate, Vector

NOT_MEASURED = (
    "norms, cosines and product gap of single updates, and how much of each arrives: nobody but its site sees one"
)
IN_THE_CLEAR = "it was not masked, and updates of this experiment are"
FEWEST_APART = 3
"""Updates of a mean from which each site can take its own and not have a single other one."""


class SummedUpdates:
    """One running sum, and nothing else of anybody."""

    def __init__(self, asked: Adapter, checks: CheckOptions, summing: Summing) -> None:
        self.refused: dict[str, str] = {}
        self.void = ""
        """Why there is no sum; nothing where there is one."""
        self._checks, self._summing = checks, summing
        self._broadcast, self._layout = pack(asked), asked.layout
        self._total: Residues | None = None
        self._added: dict[str, bool] = {}
        self._learned = 0
        self._mean: SummedUpdate | None = None
        self._participants: tuple[str, ...] = ()

    def take(self, update: ClientUpdate) -> None:
        if reason := self._unfit(update):
            self.refused[update.client] = reason
        elif update.encoded is not None:
            self._total = update.encoded.array.copy() if self._total is None else self._total + update.encoded.array
            self._added[update.client] = bool(update.counts.get("learned_from") or update.counts.get("fresh"))

    def _unfit(self, update: ClientUpdate) -> str:
        encoded = update.encoded
        if encoded is None and update.vector is None:
            return ""
        if update.client not in self._summing.learners:
            return "it only measures, and has nothing to add"
        precision = self._form(1).precision
        if encoded is None or encoded.precision != precision:
            return IN_THE_CLEAR
        dtype, size = encoded_form(precision, length(self._layout))
        fits = encoded.array.shape == (size,) and encoded.array.dtype == np.dtype(dtype)
        return "" if fits and update.layout == self._layout else "its tensors have other names or shapes than the sum"

    def usable(self, answers: Replies, earlier: Sequence[float]) -> Sequence[StoredUpdate]:
        self._participants = answers.participants
        self.void = self._incomplete(answers)
        total, self._total = self._total, None
        if self.void or total is None:
            return []
        form = self._form(len(self._participants))
        self._learned = form.added(total)
        if not 0 <= self._learned <= len(self._participants):
            self.void = (
                "the masks of its sum do not cancel: a site has other keys of the others, or another task, than they"
            )
        elif self._learned:
            mean = form.mean(total, self._broadcast)
            self.void = self._not_apart() or self._beyond(mean, earlier)
            square = form.mean_square(total, self._broadcast) if form.squares else 0.0
            self._mean = None if self.void else SummedUpdate("", self._layout, mean, {}, self._learned, square)
        return [] if self._mean is None else [self._mean]

    def _form(self, sites: int) -> FixedPoint:
        return self._summing.options.fixed_point(sites, self._summing.squares)

    def _not_apart(self) -> str:
        """Why sites cannot take their own updates out of the mean, where they do so."""
        if not self._summing.apart:
            return ""
        if self._learned < FEWEST_APART:
            return (
                f"only {self._learned} of its {len(self._participants)} participants had learned something, and whoever "
                "takes an update of its own out of their mean would have a single other one"
            )
        if self._learned not in (len(self._telling()), len(self._participants)):
            return "some of its participants had learned nothing, and sites do not tell their counts, by which to know whom"
        return ""

    def _telling(self) -> tuple[str, ...]:
        """Those who say that they learned something."""
        return tuple(client for client in self._participants if self._added[client])

    def _incomplete(self, answers: Replies) -> str:
        missing = [client for client in self._participants if client not in self._added]
        why = [f"{name}: {self.refused.get(name) or answers.absent.get(name, 'left out')}" for name in missing]
        if not self._participants:
            return "nobody was asked to add to it"
        return f"of its {len(self._participants)} participants some are missing ({'; '.join(why)})" if missing else ""

    def _beyond(self, mean: Vector, earlier: Sequence[float]) -> str:
        """Why the mean cannot be used, if it cannot."""
        update = ClientUpdate("", 0, mean, self._layout, {}, {})
        reason = refusal(update, self._broadcast, self._layout, self._checks)
        if reason is None and self._checks.max_ratio is not None:
            usual = float(np.linalg.norm(self._broadcast.astype(np.float64)))
            reason = dict(unusual({"": self._norm(mean)}, usual, earlier, self._checks.max_ratio)).get("")
        return f"of the mean of its updates: {reason}" if reason else ""

    def _norm(self, mean: Vector) -> float:
        return float(np.linalg.norm(mean.astype(np.float64) - self._broadcast))

    def contributed(self) -> tuple[str, ...]:
        """Those who say that they learned something, if the sum agrees; otherwise all who may have."""
        if self._mean is None:
            return ()
        telling = self._telling()
        return telling if len(telling) == self._learned else self._participants

    def before(self) -> Mapping[str, Any]:
        told: dict[str, Any] = {} if self._mean is None else {"mean_update_norm": self._norm(self._mean.vector)}
        about: dict[str, Any] = {"participants": list(self._participants), "added": self._learned}
        if self.void:
            about["void"] = self.void
        return {**told, "secure_sum": about, "not_measured": NOT_MEASURED}

    def after(self, whole: Adapter, following: Adapter, plan: TensorPlan) -> Mapping[str, Any]:
        del whole, following, plan  # It would need single updates.
        return {}
