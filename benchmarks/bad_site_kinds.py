"""Kinds of bad site: what a client sends in place of what it learned, or learns in place of what it lived through."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from backdoor import poisoned

from fedse.adapters.plan import part_to_send
from fedse.clients.client import Client
from fedse.clients.requests import Teach, Work
from fedse.engines.local import LocalEngine
from fedse.federation.sites import Sites
from fedse.types import ClientUpdate, Encoded, Lesson, RoundTask, Vector


class Own(NamedTuple):
    """What a bad site has at hand when it sends something."""

    broadcast: Vector
    learned: Vector
    past: list[Vector]
    """What it learned in all rounds, this one last."""
    bad: int = 1
    """How many sites are bad."""

    def noise(self) -> Vector:
        return np.random.default_rng(len(self.past)).standard_normal(self.learned.size).astype(np.float32)


Attack = Callable[[Own], Vector]


class Kind(NamedTuple):
    """What makes a site a bad one."""

    sends: Attack
    backdoor: bool = False
    """It also learns to take a given action after a given phrase."""
    together: bool = False
    """All bad sites send the same: what the first of them would send."""


def as_learned(own: Own) -> Vector:
    return own.learned


def scaled(by: float) -> Attack:
    return lambda own: (own.broadcast + np.float32(by) * (own.learned - own.broadcast)).astype(np.float32)


def replacing(own: Own) -> Vector:
    """So far that the mean of five sites is about what the bad ones learned: five times, shared by those who are bad."""
    return scaled(5.0 / own.bad)(own)


def noisy(own: Own) -> Vector:
    """Ten times as far as it learned, in a random direction."""
    noise = own.noise()
    length = 10 * np.linalg.norm(own.learned - own.broadcast) / np.linalg.norm(noise)
    return (own.learned + length * noise).astype(np.float32)


def free_rider(own: Own) -> Vector:
    """What it was sent, with a little noise, so that it does not look as if nothing was learned."""
    return (own.broadcast + 1e-4 * own.noise()).astype(np.float32)


def with_nan(own: Own) -> Vector:
    sent = own.learned.copy()
    sent[len(sent) // 2] = np.nan
    return sent


ATTACKS: dict[str, Kind] = {
    "none": Kind(as_learned),
    "scaled": Kind(scaled(10.0)),
    "sign_flipped": Kind(scaled(-10.0)),
    "noisy": Kind(noisy),
    "backdoored": Kind(as_learned, backdoor=True),
    "backdoored_scaled": Kind(replacing, backdoor=True),
    "colluding": Kind(scaled(-2.0), together=True),
    "free_rider": Kind(free_rider),
    "stale": Kind(lambda own: own.past[0]),
    "replayed": Kind(lambda own: own.past[max(0, len(own.past) - 2)]),
    "far_scaled": Kind(scaled(1000.0)),
    "nan": Kind(with_nan),
    "wrong_shape": Kind(lambda own: own.learned[:-1]),
}
"""`stale` sends what it learned in round 1 for ever, `replayed` what it learned in the round before."""


class BadSite:
    """A client that works like any other and learns or sends something else. What leaves does not pass its door again."""

    def __init__(self, client: Client, kind: Kind, agreed: dict[int, Vector], bad: int) -> None:
        """`agreed` is what bad sites have in common: what they send, by round; `bad` is how many there are."""
        self._client = client
        self._kind = kind
        self._agreed = agreed
        self._bad = bad
        self._past: list[Vector] = []
        self.name = client.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def work(self, task: RoundTask) -> Work:
        update: ClientUpdate = yield from self._worked(self._client.work(task))
        if update.vector is None:
            return update
        self._past.append(update.vector)
        broadcast = part_to_send(task, self._client.adapters.plan)
        sent = self._kind.sends(Own(broadcast, update.vector, self._past, self._bad))
        if self._kind.together:
            sent = self._agreed.setdefault(task.round, sent)
        return replace(update, vector=sent, encoded=Encoded("float32", sent))

    def _worked(self, work: Work) -> Work:
        """The client's work, with other lessons if there is to be a back door."""
        answer: Any = None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as done:
                update: ClientUpdate = done.value
                return update
            answer = yield self._other(asked) if isinstance(asked, Teach) and self._kind.backdoor else asked

    def _other(self, asked: Teach) -> Teach:
        def lesson() -> Lesson | None:
            given = asked.lesson()
            return given and poisoned(given, self._client.site.chat)

        return Teach(lesson)


class WithBadSites(LocalEngine):
    """The engine of one process, some of whose clients are bad."""

    def __init__(self, sites: Sites, bad: Collection[str], kind: Kind) -> None:
        super().__init__(sites)
        agreed: dict[int, Vector] = {}
        for name in bad:
            self._clients[name] = BadSite(self._clients[name], kind, agreed, len(bad))  # type: ignore[assignment]
