"""What the server may expect in an answer to a task: names known before the run, and counts within what it asked for.

An answer that holds something else is not believed, whoever sent it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedse.federation.shared import MOST_VALUES
from fedse.privacy.names import COUNTS, METRICS, NOT_ALWAYS_COUNTED, OTHER, YES_OR_NO, may_be_told
from fedse.types import ClientUpdate, RoundTask, WorldScore

UNKNOWN = 1_000_000
"""Taken for a number that the server cannot know, such as the records of a file that only a site has."""
MOST_WORLDS = 16
"""Of a site whose worlds the server does not know."""
MOST_STEPS = 100_000
"""Of one episode."""
MOST_TOKENS = 10_000_000
"""Of one episode."""
MOST_SCORES = 8
"""That a probe may have for each world: of each split, say."""
_HEADER = 1 << 20
_NUMBER = 32


class Unexpected(ValueError):
    """What is wrong with an answer, in words of the server's own: nothing of the answer is quoted."""


@dataclass(frozen=True)
class Expected:
    """Follows from the experiment; nothing of it is learned from answers."""

    worlds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Labels of each client's worlds in the experiment file; missing where the file does not tell."""
    metrics: frozenset[str] = METRICS
    probes: frozenset[str] = frozenset()
    shares: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What plug-ins share, and the tensors of each."""
    explored: int = UNKNOWN
    """Episodes of one world in one round."""
    rescues: bool = False
    """Whether failures may be made into something else, each into one thing."""
    started: int = UNKNOWN
    """Trajectories of one world that a buffer begins with."""
    learned_from: int | None = None
    """Trajectories of a lesson; None: as many as there are."""
    tested: Mapping[str, int] = field(default_factory=dict)
    """Episodes of one world in an evaluation, by split."""

    def check(self, update: ClientUpdate, task: RoundTask) -> None:
        """Raises `Unexpected`."""
        _check_known("counts", update.counts, COUNTS | {OTHER})
        _check_known("metrics", update.metrics, self.metrics | {OTHER})
        _check_known("probes", update.probes, self.probes | {OTHER})
        _check_known("shared", update.shared, self.shares.keys())
        for name, tensors in update.shared.items():
            _check_known("shared", tensors, self.shares[name])
        if task.kind == "train":
            self._check_counts(update, task)
        elif update.counts or update.vector is not None or update.encoded is not None:
            raise Unexpected("counts: nothing is learned in an evaluation")
        self._check_scores(update, task)

    def header_bytes(self) -> int:
        """Most bytes of an answer beside its adapter."""
        return _HEADER + _NUMBER * MOST_VALUES * len(self.shares)

    def _held(self, client: str) -> int:
        return len(self.worlds.get(client, ())) or MOST_WORLDS

    def _check_counts(self, update: ClientUpdate, task: RoundTask) -> None:
        counts = dict.fromkeys(COUNTS, 0) | dict(update.counts)
        # A site may tell none of them.
        if update.vector is not None and update.counts and not update.counts.keys() >= COUNTS - NOT_ALWAYS_COUNTED:
            raise Unexpected("counts: some are missing")
        if min(counts.values()) < 0:
            raise Unexpected("counts: one is negative")
        held, explored = self._held(update.client), counts["explored"]
        remembered = held * (self.started + task.round * self.explored * (2 if self.rescues else 1))
        _check_at_most("explored", explored, held * self.explored)
        _check_at_most("errors", counts["errors"], explored)
        _check_at_most("successes", counts["successes"], explored - counts["errors"])
        failures = explored - counts["errors"] - counts["successes"]
        _check_at_most("rescued", counts["rescued"], failures if self.rescues else 0)
        _check_at_most("kept", counts["kept"], explored - counts["errors"] + counts["rescued"])
        _check_at_most("added", counts["added"], counts["kept"])
        _check_at_most("buffer", counts["buffer"], remembered)
        _check_at_most("learned_from", counts["learned_from"], min(counts["buffer"], self.learned_from or remembered))
        _check_at_most("steps", counts["steps"], explored * MOST_STEPS)
        _check_at_most("invalid", counts["invalid"], counts["steps"])
        _check_at_most("agent_tokens", counts["agent_tokens"], explored * MOST_TOKENS)
        for name in YES_OR_NO:
            _check_at_most(name, counts[name], 1)
        _check_at_most("hinted", counts["hinted"], explored)
        _check_at_most("prefixed", counts["prefixed"], explored)
        _check_at_most("hint_tokens", counts["hint_tokens"], counts["hinted"] * MOST_TOKENS)
        _check_at_most("fresh", counts["fresh"], explored - counts["errors"])

    def _check_scores(self, update: ClientUpdate, task: RoundTask) -> None:
        held = self._held(update.client)
        if len({score.world for score in update.scores}) < len(update.scores) or len(update.scores) > held:
            raise Unexpected("scores: more than one of a world, or more worlds than the site has")
        for score in update.scores:
            if score.split != task.split or (task.world and score.world != task.world):
                raise Unexpected("scores: of another split or world than was asked for")
            self._check_score(update.client, score, self.tested.get(task.split, UNKNOWN))
        for probed in update.probes.values():
            if len(probed) > MOST_SCORES * held:
                raise Unexpected("probes: too many scores")
            for score in probed:
                self._check_score(update.client, score, UNKNOWN)

    def _check_score(self, client: str, score: WorldScore, most: int) -> None:
        if not may_be_told(score.world, self.worlds.get(client, ())):
            raise Unexpected("scores: a world that the site does not have")
        played = score.episodes + sum(score.errors.values())
        _check_at_most("scores.episodes", played, most)
        _check_at_most("scores.steps", score.steps, played * MOST_STEPS)
        _check_at_most("scores.invalid", score.invalid, score.steps)
        _check_at_most("scores.tokens", score.tokens, played * MOST_TOKENS)


def _check_known(what: str, names: Iterable[str], known: Container[str]) -> None:
    if not all(name in known for name in names):
        raise Unexpected(f"{what}: a name that was not known before the run")


def _check_at_most(what: str, count: int, most: int) -> None:
    if count > most:
        raise Unexpected(f"{what}: more than can be, which is {most}")
