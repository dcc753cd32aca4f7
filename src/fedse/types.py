"""The plain data that every part of fedse exchanges. Nothing here computes, reads or writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
Tensors = Mapping[str, Vector]
Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of an adapter's tensors in sorted name order: the header of a packed adapter."""
Shared = Mapping[str, Tensors]
"""Numbers that plug-ins share through the server, by the name under which they share them."""
Library = Mapping[str, Vector]
"""Adapters by the names of the clients that sent them, packed like the shared pairs of a broadcast adapter."""
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
NAME_LENGTH = 64
"""Of a name under which a number may leave a site."""


class Outcome(StrEnum):
    """How an episode ended. A broken world is an error, never a failure of the agent."""

    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


class Purpose(StrEnum):
    """Why an episode was played. What was measured is never learned from; what was relabelled was not played so."""

    EXPLORE = "explore"
    EVALUATE = "evaluate"
    DEMONSTRATE = "demonstrate"
    RELABEL = "relabel"


@dataclass(frozen=True, slots=True)
class Task:
    """One problem of a world. Its id determines the episode on any machine."""

    id: str
    category: str = ""


@dataclass(frozen=True, slots=True)
class LegalActions:
    """What an agent may do in the present state of a world."""

    listed: tuple[str, ...]
    open: tuple[tuple[str, str], ...] = ()
    """Actions with words of the agent's own: what stands before the words, and what after them."""


@dataclass(frozen=True, slots=True)
class Step:
    """What the agent saw, what it answered and what the world took from the answer."""

    observation: str
    reply: str
    thought: str
    action: str
    valid: bool
    learned: bool = True
    """Whether the reply's tokens are in the train mask."""
    reward: float = 0.0
    """What the world gave for the action by itself."""
    hint: str = ""
    """What the agent read below the observation."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished episode, as text for people and as token ids for the learner. Never leaves its client."""

    client: str
    world: str
    task: str
    purpose: Purpose
    round: int
    attempt: int
    adapter: str
    """Digest of the adapter that played; empty for a demonstration."""
    steps: tuple[Step, ...]
    closing: str
    """The observation after the last step."""
    outcome: Outcome
    score: float
    token_ids: tuple[int, ...]
    train_mask: tuple[bool, ...]
    error: str = ""
    """Class of the exception when the outcome is an error."""
    detail: str = ""
    rules: str = ""
    """What the agent was told before the first observation."""
    category: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What judges gave it, by their names. The outcome and the score are the world's, whatever stands here."""
    log_probs: tuple[float, ...] = field(default=(), compare=False)
    """Of each token of the train mask, under the distribution it was drawn from; none where that is not known."""
    reshaped: bool = field(default=False, compare=False)
    """Whether that was another than the model's own: at a temperature other than 1, or of legal tokens only."""
    truncated: bool = field(default=False, compare=False)
    """Whether a turn limit or the end of the context ended it, not the world. Known in its round; not stored."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def invalid_actions(self) -> int:
        return sum(not step.valid for step in self.steps)

    @property
    def agent_tokens(self) -> int:
        return sum(self.train_mask)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the replies of one conversation are drawn. Temperature 0 takes the likeliest token."""

    key: int
    temperature: float


@dataclass(frozen=True)
class Episode:
    """One attempt that somebody wants played."""

    client: str
    world: str
    make_world: Callable[[], Any]
    task: Task
    purpose: Purpose
    round: int
    attempt: int
    sampling: Sampling
    hint: int = 0
    """Level of the world's hints that stand below observations; 0: none. They are learned where `learns_hint` is true."""
    learns_hint: bool = False
    prefix: tuple[tuple[int, ...], ...] = ()
    """Replies in token ids with which the conversation begins. They are carried out and read, and not learned."""

    def __post_init__(self) -> None:
        if (self.hint or self.prefix) and self.purpose is not Purpose.EXPLORE:
            raise ValueError(f"hints and prefixes are for explorations only, and this episode is to {self.purpose}")


class Attempt(NamedTuple):
    """What is remembered of every exploration, also of a failed one: no words, no tokens."""

    round: int
    world: str
    task: str
    category: str
    attempt: int
    outcome: Outcome
    score: float
    reward: float
    steps: int


@dataclass(frozen=True)
class Adapter:
    """LoRA tensors in float32 under the names PEFT uses, with the contents of PEFT's `adapter_config.json`."""

    tensors: Tensors
    config: Mapping[str, Any] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    """Names of tensors that a learner leaves as they are."""

    @property
    def layout(self) -> Layout:
        return tuple((name, tuple(self.tensors[name].shape)) for name in sorted(self.tensors))

    @property
    def size(self) -> int:
        return sum(tensor.size for tensor in self.tensors.values())

    def digest(self) -> str:
        """Hash of names, shapes and exact values: equal digests mean equal adapters, bit for bit."""
        content = hashlib.sha256()
        for name in sorted(self.tensors):
            content.update(f"{name}{self.tensors[name].shape}".encode())
            content.update(np.ascontiguousarray(self.tensors[name], dtype=np.float32).tobytes())
        return content.hexdigest()


class Lesson(NamedTuple):
    """One client's learning of a round: where it starts, what is remembered, and the key of its random numbers."""

    start: Adapter
    trajectories: Sequence[Trajectory]
    key: int
    fresh: Sequence[Trajectory] = ()
    """What was explored in this round, failures included, for a learner that asks for it."""
    secret: bytes = b""
    """Known at this site alone, for a learner that draws noise."""
    own: Adapter | None = None
    """What the client's last lesson of an earlier round made, for a learner that asks for it."""
    attempts: Sequence[Attempt] = ()
    """Every exploration up to this round, for a learner that asks for them."""


Learned = tuple[Adapter, Mapping[str, float]]
"""The adapter that came of a lesson, and its metrics."""


class Sent(NamedTuple):
    """An adapter that a server broadcast, and how many rounds are behind it."""

    adapter: Adapter
    behind: int
    contributed: tuple[str, ...] = ()
    """Clients whose updates it was made of; nobody before the first round, or where that is not known."""
    library: Mapping[str, Tensors] = {}
    """The adapter that each client sent last, by its name; not to be written to. Empty where the mix asks for none."""
    own: Mapping[str, Vector] = {}
    """What this client sent for it, where the mix takes the adapter for a mean (`needs_plain_mean`)."""


Lessons = Generator[Adapter, Adapter, Adapter]
"""What a client learns from, one adapter after another, each answered by what came of it; in the end, all of it."""


@dataclass(frozen=True)
class RoundTask:
    """What the server sends to a client: the broadcast adapter, packed, and what to do with it."""

    round: int
    kind: Literal["train", "evaluate"]
    vector: Vector
    layout: Layout
    config: Mapping[str, Any]
    split: Split = "validation"
    world: str = ""
    """Evaluate only this world of the client; empty: all of them."""
    seconds: float | None = None
    """Time the client has from now on; None: as long as it takes. A later answer is not used."""
    shared: Shared = field(default_factory=dict)
    """What plug-ins of the clients have told each other by way of the server."""
    contributed: tuple[str, ...] = ()
    """Clients whose updates the adapter was made of."""
    library: Library = field(default_factory=dict)
    """What each client sent last, where the mix asks for it."""
    participants: tuple[str, ...] = ()
    """Clients whose updates are to be summed under masks, by name; nobody where updates are sent in the clear."""

    @property
    def name(self) -> str:
        """What an answer refers to; the same task sent twice has the same name."""
        if self.kind == "train":
            return f"train-{self.round:04d}"
        return f"{self.split}-{self.round:04d}{'-' + self.world if self.world else ''}"


@dataclass(frozen=True, slots=True)
class WorldScore:
    """Counts of one world's evaluation. Sums of counts, so that scores of several clients can be added."""

    world: str
    split: Split
    episodes: int
    """Episodes that ended in success or failure; errors are counted apart."""
    successes: int
    steps: int
    tokens: int
    invalid: int
    errors: Mapping[str, int]
    floor: float
    ceiling: float | None
    """What the world's expert reaches on the same tasks; None where there is no expert."""

    def check(self) -> None:
        """Counts, and nothing else, may stand here."""
        counts = (self.episodes, self.successes, self.steps, self.tokens, self.invalid, *self.errors.values())
        if not all(isinstance(count, int) and count >= 0 for count in counts) or self.successes > self.episodes:
            raise ValueError(f"a score holds counts of the type int, and no more successes than episodes, not {counts}")
        bounds = (self.floor, 0.0 if self.ceiling is None else self.ceiling)
        if self.split not in SPLITS or not all(isinstance(bound, int | float) and isfinite(bound) for bound in bounds):
            raise ValueError(f"a score holds one of the splits {', '.join(SPLITS)}, and finite numbers")


Precision = Literal["float32", "float16", "int8"]
Masked = Literal["sum32", "sum64", "sum32_squares", "sum64_squares"]
"""What a client adds to a secure sum, modulo 2^32 or 2^64, with or without the square of its change's length: by itself it
tells nothing."""


@dataclass(frozen=True)
class Encoded:
    """A packed adapter as it crosses the wire, in one array; `adapters/rounding.py` makes and reads it."""

    precision: Precision | Masked
    array: npt.NDArray[Any]


@dataclass(frozen=True)
class ClientUpdate:
    """The only thing that leaves a client: numbers under known names, and no text."""

    client: str
    round: int
    vector: Vector | None
    """Missing when the client had nothing to learn from, and in a secure sum always: `encoded` is masked then."""
    layout: Layout
    counts: Mapping[str, int]
    metrics: Mapping[str, float]
    scores: tuple[WorldScore, ...] = ()
    task: str = ""
    """Name of the task that this answers."""
    encoded: Encoded | None = None
    """`vector` in the form that leaves the site; what the server makes of it is `vector`, bit for bit."""
    shared: Shared = field(default_factory=dict)
    """What plug-ins of this client tell those of the others."""
    probes: Mapping[str, tuple[WorldScore, ...]] = field(default_factory=dict)
    """What further probes measured, by their names."""

    def __post_init__(self) -> None:
        scores = [*self.scores, *(score for probed in self.probes.values() for score in probed)]
        for score in scores:
            score.check()
        names = [*self.counts, *self.metrics, *(kind for score in scores for kind in score.errors)]
        names += [*self.probes, *self.shared, *(name for given in self.shared.values() for name in given)]
        for name in names:
            # A name in code, never a sentence of a conversation.
            if not (name.isidentifier() and len(name) <= NAME_LENGTH):
                raise ValueError(f"an update may carry numbers under names like 'loss' only, not {name!r}")
        for value in [*self.counts.values(), *self.metrics.values()]:
            if not isinstance(value, (int, float)):
                raise TypeError(f"an update may carry numbers only, not {type(value).__name__}")


Share = Callable[[int, int], Sequence[Any]]
"""Every n-th part of a list of results, from the k-th on; called with k and n. Can be pickled."""


@dataclass(frozen=True)
class Ahead:
    """Work that will be needed soon and that processes beside this one can do, with the same results."""

    share: Share
    take: Callable[[Callable[[], list[Any] | None]], None]
    """Is told where the results can be had. There are none if something went wrong, so that the work is still to do."""
    episodes: int


@dataclass(frozen=True)
class Play:
    """A client asks for episodes, played with an adapter. The answer is their trajectories, in the same order."""

    adapter: Adapter
    episodes: Sequence[Episode]
    meanwhile: Callable[[], Sequence[Ahead]] = tuple
    """What can be done for this client while they are played; asked for where there are processes for it."""


Played = Generator[Play, list[Trajectory], list[Trajectory]]
Planned = Generator[Play, list[Trajectory], list[Episode]]
"""Trajectories or episodes, on the way to which further episodes may be asked for."""


@dataclass(frozen=True, slots=True)
class ClientFailure:
    """A client could not do its task. It tells the class of the error and nothing of its text."""

    client: str
    task: str
    kind: str

    def __post_init__(self) -> None:
        if not (self.kind.isidentifier() and len(self.kind) <= NAME_LENGTH):
            raise ValueError(f"a failure carries a name like 'ValueError' only, not {self.kind!r}")


ClientReply = ClientUpdate | ClientFailure


@dataclass(frozen=True)
class ServerState:
    """Everything the next round depends on. What stands on disk after a round is exactly this."""

    round: int
    adapter: Adapter
    memory: Tensors = field(default_factory=dict)
    """Tensors of the aggregator's own, such as moments."""
    contributed: tuple[str, ...] = ()
    """Clients whose updates the adapter was made of."""
