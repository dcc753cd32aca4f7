"""Which adapter a client plays with and learns from, and what of it leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedse.adapters.packing import pack, unpack
from fedse.adapters.plan import Plan, frozen, private, sent
from fedse.clients.notebook import Notebook
from fedse.clients.own import OwnAdapters
from fedse.clients.personal import PersonalOptions, first_pair
from fedse.errors import BadInput
from fedse.stopwatch import during
from fedse.types import Adapter, RoundTask, Vector


class ClientAdapters:
    """The broadcast adapter with the client's private tensors in their place, or the client's own if it shares nothing."""

    def __init__(
        self,
        name: str,
        seed: int,
        folder: Path,
        plan: Plan,
        personal: PersonalOptions,
        shares: bool,
        joins: int = 1,
    ) -> None:
        """`joins` is the first round of the client; before it there is no adapter of its own."""
        self.name = name
        self.seed = seed
        self.plan = plan
        self.personal = personal
        self.joins = joins
        self.own = None if shares else OwnAdapters(folder / "adapters")
        self._private = Notebook(folder / "private")

    def entering(self, task: RoundTask) -> Adapter:
        """What the client plays a task with, in fresh arrays: nothing that one client does to its own reaches another."""
        with during("adapter"):
            behind = task.round - 1 if task.kind == "train" else task.round
            if self.own is not None and behind >= self.joins:
                return self._frozen(self.own.read(behind), behind + 1)
            return self.completed(unpack(task.vector, task.layout, task.config), behind)

    def completed(self, adapter: Adapter, behind: int) -> Adapter:
        """An adapter that anybody may have sent, with what this client keeps to itself after so many rounds."""
        kept = self._private.before(behind + 1).tensors
        if self.personal.rank and not kept:
            kept = first_pair(adapter, self.personal.rank, self.name, self.seed)
        return self._frozen(Adapter({**adapter.tensors, **kept}, adapter.config), behind + 1)

    def leaving(self, task: RoundTask, start: Adapter, learned: Adapter | None) -> Vector | None:
        """Keep what stays; the packed rest, or None where nothing was learned or nothing is shared."""
        if learned is not None:
            self._check_frozen(start, learned)
            self._private.keep(task.round, private(learned, self.plan.in_round(task.round)).tensors)
        if self.own is not None:
            self.own.write(task.round, start if learned is None else learned)
            return None
        with during("adapter"):
            return None if learned is None else pack(sent(learned, self.plan.in_round(task.round)))

    def _frozen(self, adapter: Adapter, round: int) -> Adapter:
        return replace(adapter, frozen=frozen(adapter, self.plan.in_round(round)))

    def _check_frozen(self, before: Adapter, after: Adapter) -> None:
        for name in sorted(before.frozen):
            if not np.array_equal(before.tensors[name], after.tensors[name]):
                raise BadInput(
                    f"learner: it changed {name}, which the aggregator keeps frozen: use the learner 'imitation', or an "
                    "aggregator with which clients train everything."
                )
