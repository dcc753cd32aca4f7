"""Which adapter a client plays with and learns from, and what of it leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from fedse.adapters.finite import is_finite
from fedse.adapters.packing import pack, unpack
from fedse.adapters.plan import Plan, frozen, opened, private, sent
from fedse.clients.guards import an_adapter, arrays
from fedse.clients.notebook import Notebook
from fedse.clients.own import OwnAdapters
from fedse.clients.own_share import began_with, with_own_share
from fedse.clients.site import Site
from fedse.clients.trials import Trial, TriesOut, on_training_tasks
from fedse.errors import BadInput
from fedse.protocols import Mix
from fedse.stopwatch import during
from fedse.types import Adapter, Lessons, RoundTask, Sent, Tensors, Vector


@runtime_checkable
class TrainsInParts(Protocol):
    """A mix whose lessons end with something else than what its client plays with."""

    def together(self, learned: Adapter) -> Adapter:
        """What the client would play with now, of all that it has learned."""
        ...


class ClientAdapters:
    """What the client's mix makes of the broadcast adapter, or the client's own if it shares nothing."""

    def __init__(self, folder: Path, plan: Plan, mix: Mix, shares: bool, trials: Notebook) -> None:
        """`trials` keeps what the mix found out by playing."""
        self.plan = plan
        self.mix = mix
        self.own = None if shares else OwnAdapters(folder / "adapters")
        self._private = Notebook(folder / "private")
        # Apart from what the mix keeps: each trial replaces the one before as a whole.
        self._trials = trials

    def tried(self, task: RoundTask, site: Site) -> Trial:
        """What the mix finds out by playing before anything else is done; the other methods need it."""
        if not isinstance(self.mix, TriesOut) or self.own is not None or not site.learns:
            return {}
        broadcast = _sent(task)
        earlier = self._trials.before(broadcast.behind + 1).tensors
        return (yield from on_training_tasks(site, self.mix.try_out(site, broadcast, earlier)))

    def entering(self, task: RoundTask, found: Tensors) -> Adapter:
        """What the client plays a task with, in fresh arrays: nothing that one client does to its own reaches another."""
        with during("adapter"):
            broadcast = _sent(task)
            if self.own is not None and (own := self.own.newest(broadcast.behind)) is not None:
                return self._frozen(own, broadcast.behind + 1)
            return self.completed(broadcast, found)

    def completed(self, broadcast: Sent, found: Tensors | None = None) -> Adapter:
        """An adapter that anybody may have sent, with what this client keeps to itself after so many rounds."""
        kept = {**self._private.before(broadcast.behind + 1).tensors, **(found or {})}
        made = an_adapter(self.mix.compose(with_own_share(self.mix, broadcast, self._private), kept), "mix, `compose`")
        if not set(broadcast.adapter.layout) <= set(made.layout):
            raise BadInput("mix, `compose`: it has to give all tensors of the broadcast adapter, in their shapes.")
        # A mix may hand on what belongs to all, which nobody may write to.
        fresh = {name: tensor if tensor.flags.writeable else tensor.copy() for name, tensor in made.tensors.items()}
        return self._frozen(replace(made, tensors=fresh), broadcast.behind + 1)

    def lessons(self, task: RoundTask, found: Tensors) -> Lessons:
        """The adapters that the client learns from in a round, one after another."""
        entered = self.entering(task, found)
        lessons = self.mix.lessons(_sent(task), entered) if self.own is None else _one(entered)
        if not hasattr(lessons, "send"):
            raise BadInput("mix, `lessons`: it has to be a generator; with one lesson it is `return (yield adapter)`.")
        following = an_adapter(next(lessons), "mix, `lessons`")
        while True:
            start = replace(following, frozen=following.frozen | self._frozen(following, task.round).frozen)
            learned = yield start
            _check_learned(start, learned)
            if not is_finite(learned):
                return learned  # Nothing can be learned from it.
            try:
                following = an_adapter(lessons.send(learned), "mix, `lessons`")
            except StopIteration as ended:
                return an_adapter(ended.value, "mix, `lessons`")

    def learned(self, learned: Adapter) -> Adapter:
        """What the client would play with after its lessons, if nobody answered what it sends."""
        return self.mix.together(learned) if self.own is None and isinstance(self.mix, TrainsInParts) else learned

    def leaving(self, task: RoundTask, start: Adapter, learned: Adapter | None, found: Tensors) -> Vector | None:
        """Keep what stays; the packed rest, or None where nothing was learned or nothing is shared."""
        self._trials.keep(task.round, found)  # What was tried holds until the next trial, whatever came of the lesson.
        ended = start if learned is None and getattr(self.mix, "keeps_unlearned", False) else learned
        if ended is not None:
            stays = private(ended, self.plan.in_round(task.round)).tensors
            kept = arrays(self.mix.keep(ended), "mix, `keep`") if self.own is None else {}
            self._private.keep(task.round, {**stays, **kept}, began_with(self.mix, _sent(task).adapter))
        if self.own is not None:
            self.own.write(task.round, start if learned is None else learned)
            return None
        with during("adapter"):
            return None if learned is None else pack(sent(learned, self.plan.in_round(task.round)))

    def diverged(self, task: RoundTask, learned: Adapter) -> Vector | None:
        """What the server is sent of an adapter that is not finite, of which nothing is kept. It refuses that, and says how
        much of it is wrong; a part that looks sound is not sent, nor is anything of a client that shares nothing."""
        if self.own is not None:
            return None
        vector = pack(sent(learned, self.plan.in_round(task.round)))
        return None if np.isfinite(vector).all() else vector

    def _frozen(self, adapter: Adapter, round: int) -> Adapter:
        return replace(adapter, frozen=frozen(adapter, self.plan.in_round(round)))


def _check_learned(before: Adapter, after: Adapter) -> None:
    if not set(before.layout) <= set(after.layout):
        raise BadInput("learner: it has to return all tensors that it began with, in their shapes.")
    for name in sorted(before.frozen):
        if not np.array_equal(before.tensors[name], after.tensors[name]):
            raise BadInput(
                f"learner: it changed {name}, which aggregator or mix keep frozen: use the learner 'imitation', or an "
                "aggregator and a mix with which clients train everything."
            )


def _one(adapter: Adapter) -> Lessons:
    return (yield adapter)


def _sent(task: RoundTask) -> Sent:
    behind = task.round - 1 if task.kind == "train" else task.round
    adapter = unpack(task.vector, task.layout, task.config)
    return Sent(adapter, behind, task.contributed, opened(task.library, task.layout))
