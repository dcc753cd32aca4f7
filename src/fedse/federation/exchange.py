"""Asking clients and waiting for their answers: who is asked, how long, and what becomes of those who are late."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import Field

from fedse.errors import TooFewClients
from fedse.plugins import PluginOptions
from fedse.protocols import Engine, KnowsWhoIsThere, Tracker
from fedse.seeds import generator
from fedse.types import ClientFailure, ClientUpdate, RoundTask

PATIENCE = 30.0
"""Seconds of silence after which a run says whom it is waiting for."""
BUSY, UNREACHABLE, TOO_SLOW, NOT_NEEDED = "Busy", "Unreachable", "TooSlow", "NotNeeded"


class ParticipationOptions(PluginOptions):
    """Who takes part in a round and how long it waits. By default everybody, as long as it takes, as in the paper."""

    operational: ClassVar[frozenset[str]] = frozenset({"least", "deadline_minutes"})

    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the clients that are asked in a round, drawn anew every round."""
    least: int = Field(default=1, ge=1)
    """Stop the run when fewer clients than this answer a round; started again, it repeats the round."""
    quorum: float = Field(default=1.0, gt=0, le=1)
    """Close a round when this share of the asked clients has answered. Below 1 the result depends on who is fast."""
    deadline_minutes: float | None = Field(default=None, gt=0)
    """Close a round after this time. A site gives its work up at the deadline; what comes later is dropped and counted."""


@dataclass
class Answers:
    """What came of one exchange."""

    updates: dict[str, ClientUpdate] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    late: int = 0


class Exchange:
    """Remembers from round to round who is still busy and who has gone."""

    def __init__(
        self,
        engine: Engine,
        options: ParticipationOptions,
        seed: int,
        tracker: Tracker,
        failed: Callable[[ClientFailure], None] = lambda _: None,
    ) -> None:
        """`failed` hears of every client that says it could not do its task, and may raise."""
        self.engine = engine
        self.options = options
        self.seed = seed
        self.tracker = tracker
        self._failed = failed
        self._busy: dict[str, str] = {}
        self._gone: set[str] = set()

    def invited(self, number: int) -> list[str]:
        """The clients of a round, by name."""
        clients = self.engine.clients
        count = max(1, math.ceil(round(self.options.share * len(clients), 9)))
        order = generator(self.seed, number, "participation").permutation(len(clients))
        return sorted(clients[index] for index in order[:count])

    def ask(
        self, clients: Sequence[str], task: RoundTask, arrived: Callable[[ClientUpdate], ClientUpdate | None]
    ) -> Answers:
        """Send the task and collect answers until quorum or deadline. `arrived` returns what is to be kept of an update."""
        answers = Answers()
        minutes = self.options.deadline_minutes
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        reachable = self._reachable()
        waited_for = []
        for client in clients:
            if client in self._busy:
                answers.absent[client] = BUSY
            elif client in self._gone and client not in reachable:
                answers.absent[client] = UNREACHABLE
            else:
                waited_for.append(client)
        self._gone -= set(waited_for)
        self._busy.update(dict.fromkeys(waited_for, task.name))
        self.engine.send(dict.fromkeys(waited_for, replace(task, seconds=None if minutes is None else 60 * minutes)))
        waiting = set(waited_for)
        enough = math.ceil(round(self.options.quorum * len(clients), 9))
        told = time.monotonic()
        while waiting and len(answers.updates) < enough and (left := until - time.monotonic()) > 0:
            for reply in self.engine.poll(min(left, PATIENCE)):
                if reply.client not in self.engine.clients:
                    continue  # A stranger.
                if self._busy.get(reply.client) == reply.task:
                    del self._busy[reply.client]
                if reply.task != task.name or reply.client not in waiting:
                    answers.late += isinstance(reply, ClientUpdate)
                    continue
                if isinstance(reply, ClientFailure) and time.monotonic() >= until:
                    continue  # Given up at the deadline, here or there; `_close` says who is slow and who is gone.
                waiting.discard(reply.client)
                told = time.monotonic()
                if isinstance(reply, ClientFailure):
                    answers.absent[reply.client] = reply.kind
                    self._failed(reply)
                elif (kept := arrived(reply)) is not None:
                    answers.updates[reply.client] = kept
                else:
                    answers.absent[reply.client] = "LeftOut"
            if waiting and time.monotonic() - told >= PATIENCE:
                told = time.monotonic()
                self.tracker.record("waiting", task=task.name, clients=sorted(waiting))
        self._close(waiting, answers, in_time=time.monotonic() < until)
        if len(answers.updates) < min(self.options.least, len(clients)):
            reasons = "; ".join(f"{client}: {reason}" for client, reason in sorted(answers.absent.items()))
            raise TooFewClients(
                f"{len(answers.updates)} of {len(clients)} clients answered {task.name} ({reasons}), fewer than "
                f"participation.least = {self.options.least}; the same command repeats it."
            )
        return answers

    def settle(self) -> None:
        """Wait for those who are still busy with a round that closed without them, at most until its deadline."""
        minutes = self.options.deadline_minutes
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        while self._busy and (left := until - time.monotonic()) > 0:
            for reply in self.engine.poll(min(left, PATIENCE)):
                if self._busy.get(reply.client) == reply.task:
                    del self._busy[reply.client]
        self._busy.clear()

    def _close(self, waiting: set[str], answers: Answers, in_time: bool) -> None:
        """Say of everybody who has not answered why not, and whom the next round need not wait for."""
        reachable = self._reachable()
        for client in sorted(waiting):
            if client not in reachable:
                self._gone.add(client)
                self._busy.pop(client, None)
                answers.absent[client] = UNREACHABLE
            elif in_time:
                answers.absent[client] = NOT_NEEDED
            else:
                # The task's life ended with the deadline, and the site gives up with it.
                self._busy.pop(client, None)
                answers.absent[client] = TOO_SLOW

    def _reachable(self) -> set[str]:
        return set(self.engine.present() if isinstance(self.engine, KnowsWhoIsThere) else self.engine.clients)
