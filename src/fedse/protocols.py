"""What a plug-in must do. Nothing needs to inherit from these: having the methods is enough. (A world inherits from
`fedse.World`, which has them.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from fedse.events import Event, Warned
from fedse.types import (
    Adapter,
    Ahead,
    Attempt,
    ClientFailure,
    ClientUpdate,
    Episode,
    Layout,
    Learned,
    LegalActions,
    Lesson,
    Lessons,
    Planned,
    Played,
    RoundTask,
    Sampling,
    Sent,
    ServerState,
    Split,
    Task,
    Tensors,
    Trajectory,
    Vector,
    WorldScore,
)


class World(Protocol):
    """A place to act: a Gymnasium environment of texts, with tasks and an expert (`worlds.world.World` is the base)."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]: ...

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]: ...

    def tasks(self, split: Split) -> Sequence[Task]: ...

    def expert(self) -> tuple[str, str]: ...


class Chat(Protocol):
    """Text to token ids and back. A conversation is the opening, then turns and replies, each appended once."""

    end_ids: frozenset[int]
    """A reply ends with one of these ids."""
    fingerprint: str
    """Hash of tokenizer and template: ids of different fingerprints must not be mixed."""

    def opening(self, rules: str) -> list[int]:
        """The rules as first message and the agent's fixed acceptance, which is not learned from."""

    def turn(self, observation: str) -> list[int]:
        """An observation and everything up to where the agent's reply begins."""

    def reply(self, text: str) -> list[int]:
        """A reply the agent did not sample (a demonstration), with its end-of-turn id."""

    def text(self, ids: Sequence[int]) -> str:
        """What a sampled reply says, without delimiters."""


class Model(Protocol):
    """A frozen base model that all clients of a process share."""

    chat: Chat
    context: int
    """Longest conversation in tokens."""

    def initial_adapter(self, seed: int) -> Adapter:
        """The adapter before any round: it changes nothing about the base model."""


@dataclass(frozen=True, slots=True)
class Reply:
    slot: int
    ids: tuple[int, ...]
    ended: bool
    """The last id is an end-of-turn id; otherwise the reply was cut at its length limit."""
    full: bool = False
    """There is no reply, because the conversation no longer fits the model."""
    log_probs: tuple[float, ...] = ()
    """Of each id, under the distribution that it was drawn from; none where the policy does not know, or did not draw."""


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
    """Holds open conversations in slots, so that a cache can live from turn to turn."""

    slots: int
    usage: Usage

    def load(self, adapter: Adapter) -> None:
        """Answer with this adapter from now on. No conversation may be open."""

    def open(self, opening: Sequence[int], sampling: Sampling) -> int:
        """Take a free slot for a conversation that begins with these ids."""

    def extend(self, slot: int, ids: Sequence[int]) -> None:
        """Append a turn; the agent's reply to it is due."""

    def ready(self) -> list[Reply]:
        """Work until at least one due reply is complete and return the complete ones."""

    def close(self, slot: int) -> None:
        """Free the slot."""


class Start(Protocol):
    """What a client's buffer begins with. One that gives nothing, ever, says so with `empty = True`; one that gives a world
    no more trajectories than an option of its own says names that option in `bounded_by`; one in which no trajectory
    decides whether another is given says `one_by_one = True`."""

    def trajectories(self, client: str, label: str, world: Any, chat: Chat, seed: int) -> list[Trajectory]: ...


@runtime_checkable
class KnowsItsSize(Protocol):
    """A start that can tell in advance how much it will give, for estimates."""

    def size(self, client: str, label: str, world: Any) -> int: ...


@runtime_checkable
class StartsAhead(Protocol):
    """A start that tells what `trajectories` will need and nobody is at yet, to be done while the agent plays."""

    def ahead(self, client: str, label: str, make_world: Callable[[], Any], seed: int) -> Sequence[Ahead]: ...


@runtime_checkable
class CanBeChecked(Protocol):
    """A start that can be tried before anything is written."""

    def check(self, client: str, label: str, world: Any, model: Model) -> list[Warned]:
        """What the user should read. Raises `BadInput` if this world could not begin."""


@runtime_checkable
class DependsOnFiles(Protocol):
    """A start that gives something else when its files change."""

    def fingerprint(self) -> str:
        """A hash of what the files hold: a run whose first round is not complete does not go on with another."""


@runtime_checkable
class Restricts(Protocol):
    """A policy whose replies can be made to hold one of the world's legal actions, if it asks for them."""

    asks_for_actions: bool

    def restrict(self, slot: int, actions: LegalActions) -> None:
        """Called after `extend`: the reply that is due then holds one of these."""

    def require_room(self, actions: LegalActions) -> None:
        """Raises `BadInput` where no reply could hold all of them."""


@runtime_checkable
class Forks(Protocol):
    """A policy that can copy a conversation, to go on with it in several ways."""

    def fork(self, slot: int, sampling: Sampling | None = None) -> int:
        """Take a free slot for a copy of a conversation of which no reply is due. Its replies are drawn as those of the
        other would be, or by a sampling of its own."""


class Past(Protocol):
    """What a client knows of its earlier rounds."""

    def attempts(self, world: str = "") -> Sequence[Attempt]:
        """Every exploration before this round, from a task's beginning, oldest first; of one world, or of all of them."""

    def remembered(self, world: str) -> Sequence[Trajectory]:
        """What the buffer holds of a world before this round, oldest first; what it began with is there from round 2 on."""


class Curriculum(Protocol):
    """Chooses what a client explores: which tasks, how many attempts, how hot. Built with the client's `Site`.

    It may ask for episodes of its own on the way, with `played = yield Play(adapter, episodes)`, where `ENTERING` of
    `clients.guards` stands for the adapter that enters the round; one that does not is a generator all the same. What it
    plans may depend on seed, round and past alone, so that a repeated round is the same. One that never plans more than
    `exploration` says for each world says so with `keeps_to_exploration = True`; one that needs the hints of worlds, or
    tasks that they make or compose, with `needs_hints = True`, `needs_made_tasks = True`, `needs_composed_tasks = True`."""

    def plan(self, task: RoundTask, past: Past) -> Planned: ...


class Judge(Protocol):
    """Says what explorations are worth. Built with the client's `Site`; never sees errors.

    It returns all trajectories in their order, with `rewards` under names of its own; outcome and score stay the world's.
    It may ask for episodes of its own, as a curriculum may; `entering()` makes the adapter of the round.
    """

    def judge(self, trajectories: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played: ...


class Rescue(Protocol):
    """Makes further trajectories of finished explorations, to be judged, filtered and remembered beside them; their purpose
    is `RELABEL`. Built with the client's `Site`; may ask for episodes, as a curriculum may. Its class says what it needs of
    worlds and exploration: `needs_made_tasks`, `needs_several_attempts = True`; `empty = True` where it makes nothing."""

    def rescue(self, explored: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played: ...


class Probe(Protocol):
    """Measures the adapter that enters a round, or any other on a split. Nobody learns from its episodes."""

    def plan(self, task: RoundTask) -> Sequence[Episode]: ...

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Sequence[WorldScore]:
        """What came of the episodes it planned."""


@runtime_checkable
class LearnedProbe(Protocol):
    """Measures what a client has learned in a round, before it is sent. A probe of the experiment that can do so as well is
    asked where its option `learned` is set, and what it finds is told under its name and `_learned`."""

    def plan_learned(self, task: RoundTask) -> Sequence[Episode]: ...

    def score(self, task: RoundTask, played: Sequence[Trajectory]) -> Sequence[WorldScore]:
        """What came of the episodes it planned."""


@runtime_checkable
class ScoresAhead(Protocol):
    """A probe that tells what `score` will need and nobody is at yet, to be done while its episodes are played."""

    def ahead(self, task: RoundTask) -> Sequence[Ahead]: ...


@runtime_checkable
class Shares(Protocol):
    """A plug-in of a client that tells numbers to those of other clients. The server hands out the mean of them."""

    shares: str
    """The name under which it shares; a word like `bandit`. The class names its tensors too, in an attribute
    `gives = frozenset({"counts"})`: other names do not leave a site, since they could hold text."""

    def give(self, round: int) -> Tensors:
        """What leaves at the end of a round: float32 tensors under words like `counts`."""

    def take(self, round: int, merged: Tensors) -> None:
        """What came of the last round in which anybody gave something; empty before."""


class Filter(Protocol):
    """Chooses which trajectories of a round are remembered. Never sees errors; keeps the order."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]: ...


class Mix(Protocol):
    """What a client makes of the broadcast adapter, and what of it stays. Built with the client's name and the seed.

    One that makes no sense for a client by itself says so with `needs_others = True`; one that puts a second pair beside
    the shared one with `needs_lora = True`; one that takes the broadcast adapter for the plain mean of what clients sent
    with `needs_plain_mean = True` (it is then told what the client sent for it, `sent.own`), and an aggregator that makes
    it with `plain_mean = True`; one that adds what a server does beyond that mean with `adds_server_step = True`; one whose
    clients do not simply add what they keep to what they are sent, so that an adapter cannot be tried at other clients,
    with `own_mixture = True`; one that needs the adapter that each client sent last (`sent.library`) with `needs_library =
    True`; one that mixes whole adapters, so that clients have to send all that they train and be sent no further ranks,
    with `needs_whole_adapters = True`; one that adds up factors of different adapters, which have to belong together, with
    `needs_same_factors = True`; one that freezes the shared pair in one of its lessons with `freezes_shared = True`; one
    that keeps what its client ended a round with, even if nothing was learned in it, with `keeps_unlearned = True`; one
    that leaves every client to its own adapter in the first `rounds` rounds, an attribute of its own, with `begins_alone =
    True`. It may play before it composes (`clients.trials.TriesOut`).
    """

    def compose(self, sent: Sent, kept: Tensors) -> Adapter:
        """What the client plays and learns with. `kept` is what stayed after its last round; nothing before its first."""

    def lessons(self, sent: Sent, adapter: Adapter) -> Lessons:
        """The adapters to learn from, one after another (`learned = yield adapter`); returns the one whose shared part is
        sent. `adapter` is what `compose` made."""

    def keep(self, learned: Adapter) -> Tensors:
        """What stays at the client, beside the tensors that it trains and does not send."""


class Learner(Protocol):
    """Fits an adapter to trajectories, starting from the broadcast one, with a fresh optimiser.

    Tensors in `lesson.start.frozen` come back as they were. A class with `learns_from_failures = True` is also given what
    the round explored, whatever came of it (`lesson.fresh`), even where nothing is remembered; one with
    `learns_from_own_adapter = True` what the client's last round of learning made (`lesson.own`); one with
    `learns_from_attempts = True` how every exploration so far ended (`lesson.attempts`). Metrics beyond the usual
    ones (`privacy.names.METRICS`) have to be named in an attribute `metrics` of the class; all others leave as `other`.
    """

    def learn(self, lesson: Lesson) -> Learned | None:
        """The adapter and its metrics, or None to abstain: the client then sends no update."""


@runtime_checkable
class FollowsRounds(Protocol):
    """A learner with numbers that change from round to round."""

    def enter(self, round: int) -> None:
        """Called before the lessons of a round."""


@runtime_checkable
class LearnsTogether(Learner, Protocol):
    """A learner that can train the adapters of several clients at the same time."""

    at_once: int
    """How many it wants."""

    def learn_together(self, lessons: Sequence[Lesson]) -> Sequence[Learned | None]:
        """What `learn` would return for each."""


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

    It may have a `plan` (`adapters.plan`) that says which factors clients train and send, `promises` (`aggregators.rule`)
    that `fedse aggregators check` tries, `needs_counts` for what it weighs updates by, and `new_factors = True` if its
    factors are not near those of the round before.
    """

    def aggregate(
        self, state: ServerState, updates: Sequence[StoredUpdate]
    ) -> tuple[ServerState, Mapping[str, float]]: ...


@runtime_checkable
class DependsOnNumbers(Protocol):
    """An aggregator that does not do what it is for with too few clients."""

    def advice(self, clients: int) -> str:
        """A sentence for the user when so many take part in a round, or nothing."""


class Engine(Protocol):
    """Carries tasks to clients and their answers back. Knows nothing of rounds. One whose clients all live in this process
    says so with `in_process = True`."""

    clients: tuple[str, ...]

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        """Bring each client its task. A client whose last task is not answered yet is never sent another."""

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        """The answers that have arrived since the last call; waits for one, at most about so many seconds."""


@runtime_checkable
class Closes(Protocol):
    """An engine or a tracker that has something to close when the run ends."""

    def close(self) -> None: ...


class Tracker(Protocol):
    """Is told what happens, in the words of `fedse.events`. Built with the run's folder where an experiment file names it.
    One that fails is told nothing more, and the run goes on."""

    def record(self, event: Event) -> None: ...
