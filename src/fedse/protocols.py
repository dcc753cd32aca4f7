"""What a plug-in must do. Nothing needs to inherit from these: having the methods is enough."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedse.types import (
    Adapter,
    ClientFailure,
    ClientUpdate,
    Layout,
    Learned,
    RoundTask,
    ServerState,
    Trajectory,
    Vector,
)

ACCEPTANCE = "OK."
"""The agent's fixed answer to the rules. It stands in every conversation and is never learned from."""

ACTION_MARK = re.compile(r"^[ \t]*action[ \t]*:", re.IGNORECASE | re.MULTILINE)
"""What opens the line of a reply that holds its action."""


class Chat(Protocol):
    """Text to token ids and back. A conversation is the opening, then turns and replies, each appended once."""

    end_ids: frozenset[int]
    """A reply ends with one of these ids."""
    fingerprint: str
    """Hash of tokenizer and template: ids of different fingerprints must not be mixed."""

    def opening(self, rules: str) -> list[int]:
        """The rules as first message and the agent's fixed acceptance, which is not learned from."""
        ...

    def turn(self, observation: str) -> list[int]:
        """An observation and everything up to where the agent's reply begins."""
        ...

    def reply(self, text: str) -> list[int]:
        """A reply the agent did not sample (a demonstration), with its end-of-turn id."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """What a sampled reply says, without delimiters."""
        ...


class Model(Protocol):
    """A frozen base model that all clients of a process share."""

    chat: Chat
    context: int
    """Longest conversation in tokens."""

    def initial_adapter(self, seed: int) -> Adapter:
        """The adapter before any round: it changes nothing about the base model."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the replies of one conversation are drawn. Temperature 0 takes the likeliest token."""

    key: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Reply:
    slot: int
    ids: tuple[int, ...]
    ended: bool
    """The last id is an end-of-turn id; otherwise the reply was cut at its length limit."""
    full: bool = False
    """There is no reply, because the conversation no longer fits the model."""


@dataclass(slots=True)
class Usage:
    """Tokens a policy has handled since it was built."""

    prefilled: int = 0
    """Tokens of prompts and observations that were run through the model."""
    prefilled_without_cache: int = 0
    """What it would have been, had every turn encoded its whole conversation again."""
    decoded: int = 0
    uncounted: int = 0
    """Replies for which a server told no numbers; they are missing in the other counts."""


class Policy(Protocol):
    """Holds open conversations in slots, so that a cache can live from turn to turn.

    One with a true `asks_for_actions` has `restrict(slot, actions)`, which is called after `extend` with the world's
    `LegalActions`: the reply that is due then holds one of them; and `require_room(actions)`, which raises `BadInput` where
    no reply could hold all of them.
    """

    slots: int
    usage: Usage

    def load(self, adapter: Adapter) -> None:
        """Answer with this adapter from now on. No conversation may be open."""
        ...

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        """Take a free slot for a conversation that begins with these ids."""
        ...

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        """Append a turn; the agent's reply to it is due."""
        ...

    def ready(self) -> list[Reply]:
        """Work until at least one due reply is complete and return the complete ones."""
        ...

    def close(self, slot: int) -> None:
        """Free the slot."""
        ...


class Start(Protocol):
    """What a client's buffer begins with.

    It may also have `size(client, label, world)`, the number of trajectories, for estimates. One that depends on files may
    have `check(client, label, world, model)`, which is called before anything is written: it raises `BadInput` if this
    world could not begin, and returns what the user should read, as fields of warnings; and `fingerprint()`, a hash of what
    the files hold: a run whose first round is not complete does not go on with another.
    """

    def trajectories(self, client: str, label: str, world: Any, chat: Chat, seed: int) -> list[Trajectory]: ...


class Filter(Protocol):
    """Chooses which trajectories of a round are remembered. Never sees errors; keeps the order."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]: ...


class Learner(Protocol):
    """Fits an adapter to trajectories, starting from the broadcast one, with a fresh optimiser.

    Tensors in `start.frozen` come back as they were. One that can train the adapters of several clients at the same time has
    `at_once`, how many it wants, and `learn_together(lessons)`, with what `learn` would return for each.
    """

    def learn(self, start: Adapter, trajectories: Sequence[Trajectory], key: int) -> Learned | None:
        """The adapter and its metrics, or None to abstain: the client then sends no update."""
        ...


class StoredUpdate(Protocol):
    """A client's packed adapter on the server's disk, readable in pieces."""

    @property
    def client(self) -> str: ...

    @property
    def counts(self) -> Mapping[str, int]: ...

    @property
    def layout(self) -> Layout: ...

    def read(self, start: int = 0, stop: int | None = None) -> Vector: ...


class Aggregator(Protocol):
    """Makes the next state from the updates of a round, which come sorted by client name.

    It may have a `plan` (`adapters.plan.TensorPlan`) that says which factors clients train and send, and `promises`
    (`aggregators.rule`) that `fedse aggregators check` tries.
    """

    def aggregate(
        self, state: ServerState, updates: Sequence[StoredUpdate]
    ) -> tuple[ServerState, Mapping[str, float]]: ...


class Engine(Protocol):
    """Carries tasks to clients and their answers back. Knows nothing of rounds.

    It may also have `close()`, which is called when the run ends, and `present()`, the clients that can be reached now;
    without it all of them always can.
    """

    clients: tuple[str, ...]

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        """Bring each client its task. A client whose last task is not answered yet is never sent another."""
        ...

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        """The answers that have arrived since the last call; waits for one, at most about so many seconds."""
        ...


class Tracker(Protocol):
    """Is told what happens. May never stop a run."""

    def record(self, event: str, **fields: Any) -> None: ...
