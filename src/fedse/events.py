"""What happens in a run: the words in which trackers are told of it, and in which it stands in events.jsonl.

A line of the log is `{"time": ..., "version": 1, "event": "round_finished", "round": 3, ...}`. Events and fields may be
added; `VERSION` counts changes that a reader of earlier ones would misunderstand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

VERSION = 1
DETAILS = "details"
"""Name of a field whose keys stand among the others in a line of the log."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One of those below. In the log it has the name of its class, in another spelling, or the one that is given."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, name: str = "") -> None:
        cls.name = name or re.sub(r"(?<=.)(?=[A-Z])", "_", cls.__name__).lower()

    def to_json(self) -> dict[str, Any]:
        """Its name and fields, without the time."""
        known = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"event": self.name, **known.pop(DETAILS, {}), **known}


@dataclass(frozen=True, kw_only=True)
class MadeWith(Event):
    """A start of the run, and with what: versions, commit, machine."""

    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    round: int
    """The newest complete one."""
    rounds: int


@dataclass(frozen=True, kw_only=True)
class RoundStarted(Event):
    round: int


@dataclass(frozen=True, kw_only=True)
class EpisodesPlanned(Event):
    clients: Mapping[str, int]
    """How many each of those that play now is going to play."""
    exploring: Mapping[str, int] = field(default_factory=dict)
    """How many of them are explorations; the others measure."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFinished(Event, name="episode"):
    """One is over. There are too many of them for the log."""

    client: str
    purpose: str
    outcome: str


@dataclass(frozen=True, kw_only=True)
class EpisodesPlayed(Event):
    """All that were asked for together, and their tokens."""

    round: int
    episodes: int
    prefilled: int
    prefilled_without_cache: int
    decoded: int
    uncounted: int = 0
    """Replies for which a server told no numbers."""


@dataclass(frozen=True, kw_only=True)
class ClientLearning(Event):
    client: str
    round: int


@dataclass(frozen=True, kw_only=True)
class ClientFinished(Event):
    """A client's answer in a round has arrived."""

    client: str
    round: int
    sent: bool
    """Whether there is an update in it."""
    state: str
    """What became of the client, in the words of `federation.client_status`."""
    counts: Mapping[str, int]
    metrics: Mapping[str, float]
    scores: Sequence[Mapping[str, Any]]
    """How the adapter that entered the round did, in each world."""


@dataclass(frozen=True, kw_only=True)
class Warned(Event, name="warning"):
    """Something the user should read."""

    message: str
    kind: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What it is about: client, world, round, as far as there is one."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Event):
    task: str
    clients: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class RoundFinished(Event):
    """A round is complete and stored."""

    round: int
    seconds: float
    refused: Mapping[str, str]
    contributed: Sequence[str]
    absent: Mapping[str, str] = field(default_factory=dict)
    late: int = 0


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    """The adapter after a round was played on a split, and the result is stored."""

    round: int
    split: str
    macro: float | None
    micro: float | None


@dataclass(frozen=True, kw_only=True)
class RunStopped(Event):
    """The run ended before its last round and its evaluations were done. One that was killed had no time to say so."""

    why: str


KINDS: Mapping[str, type[Event]] = {kind.name: kind for kind in Event.__subclasses__()}


def from_json(line: Mapping[str, Any]) -> Event | None:
    """The event that stands in a line; None for one that this fedse does not know, or cannot read."""
    kind = KINDS.get(str(line.get("event")))
    version = line.get("version", VERSION)
    if kind is None or not isinstance(version, int) or version > VERSION:
        return None
    given = {name: value for name, value in line.items() if name not in ("time", "version", "event")}
    known = {item.name: item for item in fields(kind)}
    if DETAILS in known:
        given[DETAILS] = {name: given.pop(name) for name in list(given) if name not in known or name == DETAILS}
    needed = {name for name, item in known.items() if item.default is MISSING and item.default_factory is MISSING}
    if needed - given.keys():
        return None
    return kind(**{name: value for name, value in given.items() if name in known})
