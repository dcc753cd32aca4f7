"""Asking clients and waiting for their answers: who is asked, how long, and what becomes of those who are late."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from pydantic import Field

from fedse.errors import OldRound, OtherTerms, SumRefused, TooFewClients
from fedse.events import Waiting
from fedse.federation.absence import LOOK, Absence
from fedse.federation.turns import DRAWS, Draw
from fedse.plugins import PluginOptions
from fedse.privacy.secure_sum import SecureSumOptions
from fedse.protocols import Engine, Tracker
from fedse.types import ClientFailure, ClientReply, ClientUpdate, RoundTask

PATIENCE = 30.0
"""Seconds of silence after which a run says whom it is waiting for."""
BUSY, UNREACHABLE, TOO_SLOW, NOT_NEEDED = "Busy", "Unreachable", "TooSlow", "NotNeeded"


class ParticipationOptions(PluginOptions):
    """Who takes part in a round and how long it waits. By default everybody, as long as it takes, as in the paper."""

    operational: ClassVar[frozenset[str]] = frozenset({"min_clients", "deadline_minutes", "absent_minutes"})

    fraction: float = Field(default=1.0, gt=0, le=1)
    """Fraction of the clients that are asked in a round."""
    draw: Draw = "at_random"
    """Which clients these are: drawn anew every round, or `in_turn`, one after another in an order that is drawn once, and
    anew when a client joins. With one client in a round nothing is averaged: the adapter is handed from client to
    client."""
    min_clients: int = Field(default=1, ge=1)
    """No round is closed with fewer answers than this. It does not begin before so many clients are there, and nobody is
    given up for absence below it; at the deadline the run stops, and started again, it repeats the round."""
    quorum: float = Field(default=1.0, gt=0, le=1)
    """Close a round when this share of the asked clients has answered. Below 1 the result depends on who is fast.
    Evaluations wait for all."""
    deadline_minutes: float | None = Field(default=None, gt=0)
    """Close a round so long after the clients were there and asked. A site gives its work up at the deadline; what comes
    later is dropped and counted."""
    absent_minutes: float = Field(default=10.0, gt=0)
    """Give a client up that cannot be reached for so long, before a round or in it; later rounds ask it when it is back."""

    def asked(self, clients: int) -> int:
        """How many of so many clients are asked in a round."""
        return max(1, math.ceil(round(self.fraction * clients, 9)))


class Summing(NamedTuple):
    """A secure sum: what was agreed on, and who adds to it."""

    options: SecureSumOptions
    learners: frozenset[str]
    squares: bool = False
    """Whether sites add the squared lengths of their changes too."""
    apart: bool = False
    """Whether sites take their own updates out of the mean, so that what is left has to be of several."""


@dataclass
class Replies:
    """What came of one exchange."""

    updates: dict[str, ClientUpdate] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    late: int = 0
    participants: tuple[str, ...] = ()
    """Clients that were asked to add to a secure sum; without one of them there is none."""


class Exchange:
    """Remembers from round to round who is still busy and who has gone."""

    def __init__(
        self,
        engine: Engine,
        options: ParticipationOptions,
        seed: int,
        tracker: Tracker,
        failed: Callable[[ClientFailure], None] = lambda _: None,
        joins: Mapping[str, int] | None = None,
        summing: Summing | None = None,
        learners: Collection[str] | None = None,
    ) -> None:
        """`failed` hears of every client that says it could not do its task, and may raise. `joins` is the first round of
        those clients that are not there from the beginning. With `summing` updates are added up under masks.
        `learners` are the clients that do not only measure; by default all."""
        self.engine = engine
        self.options = options
        self.seed = seed
        self.tracker = tracker
        self._failed = failed
        self._joins = joins or {}
        self.summing = summing
        self.learners = frozenset(engine.clients if learners is None else learners)
        self._busy: dict[str, str] = {}
        self._late = 0
        self._gone: set[str] = set()
        self._absence = Absence(engine, 60 * options.absent_minutes)

    def joined(self, number: int) -> list[str]:
        """The clients that are part of the federation in a round."""
        return [client for client in self.engine.clients if self._joins.get(client, 1) <= number]

    def invited(self, number: int) -> list[str]:
        """The clients of a round, by name."""
        clients = self.joined(number)
        count = self.options.asked(len(clients))
        return sorted(DRAWS[self.options.draw](clients, count, number, self.seed))

    def ask(
        self, clients: Sequence[str], task: RoundTask, arrived: Callable[[ClientUpdate], ClientUpdate | None]
    ) -> Replies:
        """Send the task and collect answers until the deadline, those of a round until quorum. `arrived` returns what is
        to be kept of an update."""
        replies = Replies()
        reachable = self._gathered(clients, task)
        minutes = self.options.deadline_minutes
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        waited_for = []
        for client in clients:
            if client in self._busy:
                replies.absent[client] = BUSY
            elif client not in reachable:
                self._gone.add(client)
                replies.absent[client] = UNREACHABLE
            else:
                waited_for.append(client)
        self._gone -= set(waited_for)
        self._busy.update(dict.fromkeys(waited_for, task.name))
        if self.summing is not None and task.kind == "train":
            replies.participants = tuple(client for client in sorted(waited_for) if client in self.summing.learners)
            task = replace(task, participants=replies.participants)
        self.engine.send(dict.fromkeys(waited_for, replace(task, seconds=None if minutes is None else 60 * minutes)))
        waiting = set(waited_for)
        least = self._least(clients)
        # Who is fast must not decide in which worlds an adapter is measured.
        quorum = self.options.quorum if task.kind == "train" else 1.0
        enough = max(least, math.ceil(round(quorum * len(clients), 9)))
        told = time.monotonic()
        while waiting and len(replies.updates) < enough and (left := until - time.monotonic()) > 0:
            for client in self._absence.lost(waiting):
                if len(replies.updates) + len(waiting) - 1 >= least:
                    waiting.discard(client)
                    self._give_up(client, replies)
            for reply in self.engine.poll(min(left, PATIENCE, self._absence.patience)) if waiting else []:
                if reply.client not in self.engine.clients:
                    continue  # A stranger.
                if self._busy.get(reply.client) == reply.task:
                    del self._busy[reply.client]
                if reply.task != task.name or reply.client not in waiting:
                    self._count_late(reply)
                    continue
                if isinstance(reply, ClientFailure) and time.monotonic() >= until:
                    continue  # Given up at the deadline, here or there; `_close` says who is slow and who is gone.
                waiting.discard(reply.client)
                told = time.monotonic()
                if isinstance(reply, ClientFailure):
                    replies.absent[reply.client] = reply.kind
                    self._failed(reply)
                elif (kept := arrived(reply)) is not None:
                    replies.updates[reply.client] = kept
                else:
                    replies.absent[reply.client] = "LeftOut"
            if waiting and time.monotonic() - told >= PATIENCE:
                told = time.monotonic()
                self.tracker.record(Waiting(task=task.name, clients=sorted(waiting)))
        self._close(waiting, replies, in_time=time.monotonic() < until)
        if task.kind == "train":
            replies.late, self._late = self._late, 0
        if len(replies.updates) < least:
            reasons = "; ".join(f"{client}: {reason}" for client, reason in sorted(replies.absent.items()))
            raise TooFewClients(
                f"{len(replies.updates)} of {len(clients)} clients answered {task.name} ({reasons}), fewer than "
                f"participation.min_clients = {self.options.min_clients}{_what_to_do(replies)}."
            )
        return replies

    def _gathered(self, clients: Sequence[str], task: RoundTask) -> set[str]:
        """Who can be reached, when all are there or those who are not have had time to come. Deadlines count from now on."""
        began = told = time.monotonic()
        # A sum of fewer than sites accept need not be asked for.
        enough = self.summing.options.min_sites if self.summing is not None and task.kind == "train" else 0
        enough = max(self._least(clients), min(enough, len(clients)))
        while True:
            there, now = self._absence.there(), time.monotonic()
            missing = [client for client in clients if client not in there and client not in self._busy]
            late = now - began >= self._absence.patience or all(client in self._gone for client in missing)
            if not missing or (late and len(clients) - len(missing) >= enough):
                return there
            if now - told >= PATIENCE:
                told = now
                self.tracker.record(Waiting(task=task.name, clients=missing))
            time.sleep(min(LOOK, self._absence.patience))

    def _least(self, clients: Sequence[str]) -> int:
        return min(self.options.min_clients, len(clients))

    def settle(self) -> None:
        """Wait for those who are still busy with a round that closed without them, at most until its deadline."""
        minutes = self.options.deadline_minutes
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        while self._busy and (left := until - time.monotonic()) > 0:
            for client in self._absence.lost(self._busy):
                self._give_up(client)
            for reply in self.engine.poll(min(left, PATIENCE, self._absence.patience)) if self._busy else []:
                if self._busy.get(reply.client) == reply.task:
                    del self._busy[reply.client]
                self._count_late(reply)
        self._busy.clear()

    def _count_late(self, reply: ClientReply) -> None:
        """For the report of the next round that is closed; scores that came too late are no updates."""
        self._late += isinstance(reply, ClientUpdate) and reply.task.startswith("train-")

    def _close(self, waiting: set[str], replies: Replies, in_time: bool) -> None:
        """Say of everybody who has not answered why not, and whom the next round need not wait for."""
        reachable = self._absence.there()
        for client in sorted(waiting):
            if client not in reachable:
                self._give_up(client, replies)
            elif in_time:
                replies.absent[client] = NOT_NEEDED
            else:
                # The task's life ended with the deadline, and the site gives up with it.
                self._busy.pop(client, None)
                replies.absent[client] = TOO_SLOW

    def _give_up(self, client: str, replies: Replies | None = None) -> None:
        self._gone.add(client)
        self._busy.pop(client, None)
        self._absence.give_up(client)
        if replies is not None:
            replies.absent[client] = UNREACHABLE


_ANSWERS_TO: Mapping[str, str] = {
    SumRefused.__name__: (
        "Sites take part in one secure sum in each round: if some have answered this one already, wait until all clients of "
        "that time are there, and the same command repeats it; what else they refuse, their logs say"
    ),
    OldRound.__name__: (
        "Sites have answered later rounds of this run than its folder here knows: give the folder back (--runs), or begin a "
        "run with another `name`"
    ),
    OtherTerms.__name__: (
        "OtherTerms means that the experiment at a site is not this one: its `name` or another key that both must agree on "
        "differs, as the site's log says. Give these sites this experiment's file (theirs is named in site.yaml), with "
        "every `--set` of this command written into it, and start them again; until then the same command fails again"
    ),
}
"""What to do about refusals that are the same when the round is repeated."""


def _what_to_do(replies: Replies) -> str:
    found = [answer for kind, answer in _ANSWERS_TO.items() if kind in replies.absent.values()]
    return "".join(f". {answer}" for answer in found) or "; the same command repeats it"
