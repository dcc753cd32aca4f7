"""What the server keeps of a round's updates, and what can be told of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedse.adapters.packing import pack
from fedse.adapters.plan import TensorPlan
from fedse.adapters.stored import UpdateFile, store_update
from fedse.aggregators.diagnostics import diagnose
from fedse.aggregators.effective_step import effective_steps
from fedse.evaluation.side_by_side import AFTER_LEARNING, AS_BROADCAST
from fedse.federation.checks import CheckOptions, refusal
from fedse.federation.exchange import Replies
from fedse.federation.governance import Governance, Standing, gain
from fedse.federation.usual import unusual
from fedse.protocols import StoredUpdate
from fedse.stopwatch import during
from fedse.types import Adapter, ClientUpdate

MASKED = "it is masked, and updates of this experiment are sent in the clear"


class Collected(Protocol):
    """Updates of a round, from the first that arrives to the last."""

    refused: dict[str, str]
    """Clients whose updates cannot be used, each with the reason."""

    def take(self, update: ClientUpdate) -> None:
        """Keep what is needed of an update that has arrived."""
        ...

    def usable(self, answers: Replies, earlier: Sequence[float]) -> Sequence[StoredUpdate]:
        """What the aggregator is given, when nothing more will come; `earlier` says how far updates went in the last
        rounds."""
        ...

    def contributed(self) -> tuple[str, ...]:
        """The clients behind it, by name."""
        ...

    def before(self) -> Mapping[str, Any]:
        """Numbers for the report about what was collected."""
        ...

    def after(self, whole: Adapter, following: Adapter, plan: TensorPlan) -> Mapping[str, Any]:
        """Numbers for the report about what came of it."""
        ...


class SingleUpdates:
    """Every update by itself, on the server's disk."""

    def __init__(
        self,
        asked: Adapter,
        checks: CheckOptions,
        spool: Path,
        needed: Collection[str] = (),
        standings: Mapping[str, Standing] | None = None,
    ) -> None:
        """`asked` is the part of the broadcast adapter that updates hold; `needed` are counts that they have to tell;
        `standings` say what is known of sites from earlier rounds."""
        self.refused: dict[str, str] = {}
        self._asked, self._checks, self._spool, self._needed = asked, checks, spool, needed
        self._broadcast, self._layout = pack(asked), asked.layout
        self._stored: dict[str, UpdateFile] = {}
        self._norms: dict[str, float] = {}
        self._usable: list[UpdateFile] = []
        self._governance = Governance(checks.governance, standings or {}) if checks.governance else None
        self._gains: dict[str, float] = {}

    def take(self, update: ClientUpdate) -> None:
        with during("aggregate"):
            reason = refusal(update, self._broadcast, self._layout, self._checks)
        if update.vector is None and update.encoded is not None:
            reason = MASKED
        if not reason and update.vector is not None and (untold := sorted(set(self._needed) - update.counts.keys())):
            reason = f"it does not tell {', '.join(untold)}, which the aggregator needs"
        if reason:
            self.refused[update.client] = reason
        elif update.vector is not None:
            self._norms[update.client] = float(np.linalg.norm(update.vector.astype(np.float64) - self._broadcast))
            told = gain(update.probes.get(AFTER_LEARNING, ()), update.probes.get(AS_BROADCAST, ()))
            if told is not None:
                self._gains[update.client] = told
            with during("disk"):
                self._stored[update.client] = store_update(update, self._spool)

    def usable(self, answers: Replies, earlier: Sequence[float]) -> Sequence[StoredUpdate]:
        del answers  # Whoever is missing, the others can be used.
        if self._checks.max_ratio is not None:
            usual = float(np.linalg.norm(self._broadcast.astype(np.float64)))
            self.refused.update(unusual(self._norms, usual, earlier, self._checks.max_ratio))
        self._usable = self._not_refused()
        if self._governance is not None:
            with during("aggregate"):
                self.refused.update(self._governance.refused(self._broadcast, self._usable, self._gains))
            self._usable = self._not_refused()
        return self._usable

    def _not_refused(self) -> list[UpdateFile]:
        """Sorted by name, so that the order of arrival cannot change the result."""
        return [self._stored[client] for client in sorted(self._stored) if client not in self.refused]

    def contributed(self) -> tuple[str, ...]:
        return tuple(update.client for update in self._usable)

    def before(self) -> Mapping[str, Any]:
        found = dict(diagnose(self._asked, self._usable)) if self._usable else {}
        if self._governance is not None:
            found["governance"] = self._governance.told(self.refused)
        return found

    def after(self, whole: Adapter, following: Adapter, plan: TensorPlan) -> Mapping[str, Any]:
        return effective_steps(whole, following, self._usable, plan)
