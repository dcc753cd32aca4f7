"""One process, one shared base model: what clients ask for is done for many of them at once.

Episodes of clients that play with the same adapter are one batch; lessons are given in turn or, where the learner can,
several at once. Very many clients are taken in groups, so that memory holds the episodes of one group only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import ClassVar

from pydantic import Field

from fedse.clients.guards import checked_at_once, checked_learned, checked_together
from fedse.clients.requests import Teach, Work
from fedse.errors import FedseError, TooLate, WorldBroke
from fedse.events import ClientLearning, EpisodeFinished, EpisodesPlanned, EpisodesPlayed, Warned
from fedse.federation.sites import Sites
from fedse.plugins import PluginOptions
from fedse.protocols import FollowsRounds, LearnsTogether
from fedse.rollouts.beside import begin_beside
from fedse.rollouts.player import Player
from fedse.rollouts.several import AnswersWithSeveral
from fedse.stopwatch import during
from fedse.types import (
    Adapter,
    Ahead,
    ClientFailure,
    ClientReply,
    ClientUpdate,
    Episode,
    Learned,
    Lesson,
    Play,
    Purpose,
    RoundTask,
    Trajectory,
)

WAVES = 16
"""Episodes of a group for each slot of the policy: so many that the end of a group, with empty slots, matters little."""

Served = tuple[str, ClientUpdate | type[FedseError]]
"""A client and its update, or why there is none."""


class LocalEngine:
    """A scheduler: advances every client to what it asks for next, and serves all of them together.

    Results equal those of clients that work one after another; on a GPU a batch's size decides their last bits.
    """

    in_process = True

    class Options(PluginOptions):
        operational: ClassVar[frozenset[str]] = frozenset({"processes"})

        processes: int = Field(default=0, ge=0)
        """Worker processes in which worlds take their steps, and as many in which experts demonstrate and references are
        measured while the agent plays; 0 does all in this one. The results are the same."""

    def __init__(self, sites: Sites, processes: int = 0) -> None:
        household = sites.here()
        self.policy, self.learner = household.policy, household.learner
        self._clients = {client.name: client for client in household.clients}
        self.clients = tuple(sorted(self._clients))
        self.tracker = sites.tracker
        model = household.model
        self.player = Player(self.policy, model.chat, model.context, self._episode_finished, processes)
        self._processes = processes
        self._answers: Iterator[ClientUpdate | ClientFailure] = iter(())

    def send(self, tasks: Mapping[str, RoundTask]) -> None:
        # What an earlier round closed without is finished first, as a slow site would.
        self._answers = chain(self._answers, self._work(dict(tasks), time.monotonic()))

    def poll(self, seconds: float | None = None) -> list[ClientUpdate | ClientFailure]:
        del seconds  # Nothing happens while nobody waits, so there is nothing to wait for.
        return [next(self._answers)]

    def play(self, adapter: Adapter, episodes: Sequence[Episode], until: float | None = None) -> list[Trajectory]:
        """Trajectories in the order of the episodes. Raises `TooLate` at `until`."""
        return self._play([adapter], [(episode, adapter.digest()) for episode in episodes], until)

    def _play(
        self, adapters: Sequence[Adapter], episodes: Sequence[tuple[Episode, str]], until: float | None
    ) -> list[Trajectory]:
        """Episodes, each with the digest of the adapter that plays it."""
        if not episodes:
            return []
        before = replace(self.policy.usage)
        if len(adapters) > 1:
            played = self.player.play_with(episodes, until, partial(self._load, adapters))
        else:
            alone = [episode for episode, _ in episodes]
            played = self.player.play(alone, episodes[0][1], until, partial(self._load, adapters))
        usage = self.policy.usage
        self.tracker.record(
            EpisodesPlayed(
                round=episodes[0][0].round,
                episodes=len(played),
                prefilled=usage.prefilled - before.prefilled,
                prefilled_without_cache=usage.prefilled_without_cache - before.prefilled_without_cache,
                decoded=usage.decoded - before.decoded,
                uncounted=usage.uncounted - before.uncounted,
            )
        )
        return played

    def _load(self, adapters: Sequence[Adapter]) -> None:
        with during("adapter"):
            if len(adapters) > 1 and isinstance(self.policy, AnswersWithSeveral):
                self.policy.load_all(adapters)
            else:
                self.policy.load(*adapters)

    def teach(self, lessons: Sequence[Lesson], round: int) -> Sequence[Learned | None]:
        """What comes of each lesson of a round."""
        with during("learning"):
            if isinstance(self.learner, FollowsRounds):
                self.learner.enter(round)
            if len(lessons) > 1 and isinstance(self.learner, LearnsTogether):
                return checked_together(self.learner, self.learner.learn_together(lessons), len(lessons))
            return [checked_learned(self.learner, self.learner.learn(lesson)) for lesson in lessons]

    def _work(self, tasks: dict[str, RoundTask], began: float) -> Iterator[ClientReply]:
        group = _Group()
        for name in sorted(tasks):
            work = self._clients[name].work(tasks[name])
            try:
                with during("world"):
                    asked = next(work)
            except WorldBroke as error:
                self._tell(name, tasks[name].round, error)
                yield ClientFailure(name, tasks[name].name, WorldBroke.__name__)
                continue
            planned = len(asked.episodes) if isinstance(asked, Play) else 0
            if group.works and group.planned + planned > WAVES * self.policy.slots:
                yield from self._serve(group, tasks, began)
                group = _Group()
            group.works[name], group.rounds[name] = work, tasks[name].round
            group.wait(name, asked)
        yield from self._serve(group, tasks, began)

    def _serve(self, group: _Group, tasks: Mapping[str, RoundTask], began: float) -> Iterator[ClientReply]:
        """Until everybody in the group has answered: play what is wanted, and when nobody wants to play, teach."""
        seconds = next((tasks[name].seconds for name in group.works), None)
        until = None if seconds is None else began + seconds
        while group.plays or group.lessons:
            serve = self._play_together if group.plays else self._teach_together
            for name, answer in serve(group, until):
                yield ClientFailure(name, tasks[name].name, answer.__name__) if isinstance(answer, type) else answer

    def _play_together(self, group: _Group, until: float | None) -> Iterator[Served]:
        names = list(group.plays)
        try:
            played = self._play_group(group, until)
        except TooLate:
            for name in names:
                group.give_up(name)
                yield name, TooLate
            return
        for name in names:
            yield from self._go_on(group, name, played.pop(name))

    def _play_group(self, group: _Group, until: float | None) -> dict[str, list[Trajectory]]:
        """What clients wait for: one batch for all adapters that the policy can hold at a time."""
        plays, adapters, group.plays, group.adapters = group.plays, group.adapters, {}, {}
        if self._processes:
            self._begin_beside(group.meanwhile)
        group.meanwhile = []
        planned = {name: Counter(item.purpose for item in wanted) for name, (_, wanted) in plays.items()}
        self.tracker.record(
            EpisodesPlanned(
                clients={name: counts.total() for name, counts in planned.items()},
                exploring={name: counts[Purpose.EXPLORE] for name, counts in planned.items()},
            )
        )
        played: dict[str, list[Trajectory]] = {}
        for together in self._held_together(adapters):
            wanted = {name: (digest, episodes) for name, (digest, episodes) in plays.items() if digest in together}
            whole = [(episode, digest) for digest, episodes in wanted.values() for episode in episodes]
            trajectories = iter(self._play(list(together.values()), whole, until))
            for name, (_, episodes) in wanted.items():
                played[name] = list(islice(trajectories, len(episodes)))
        return played

    def _held_together(self, adapters: Mapping[str, Adapter]) -> Iterator[dict[str, Adapter]]:
        """By digest, those that the policy can hold at a time."""
        most = self.policy.adapters_at_once if isinstance(self.policy, AnswersWithSeveral) else 1
        held: dict[str, Adapter] = {}
        for digest, adapter in adapters.items():
            if held and (len(held) == most or adapter.layout != next(iter(held.values())).layout):
                yield held
                held = {}
            held[digest] = adapter
        if held:
            yield held

    def _begin_beside(self, meanwhile: Sequence[Callable[[], Sequence[Ahead]]]) -> None:
        wanted: list[Ahead] = []
        with during("world"):
            for asked in meanwhile:
                # A world that breaks is told where its work is needed.
                with suppress(WorldBroke):
                    wanted += asked()
            begin_beside(wanted, self._processes)

    def _teach_together(self, group: _Group, until: float | None) -> Iterator[Served]:
        wanted, group.lessons = group.lessons, {}
        for together in self._in_lessons(list(wanted), until):
            if until is not None and time.monotonic() >= until:
                for name in together:
                    group.give_up(name)
                    yield name, TooLate
                continue
            learned = self._teach_group(group, {name: wanted.pop(name) for name in together})
            for name in together:
                if name in learned:
                    yield from self._go_on(group, name, learned.pop(name))
                else:
                    group.give_up(name)
                    yield name, WorldBroke

    def _go_on(self, group: _Group, name: str, answer: list[Trajectory] | Learned | None) -> Iterator[Served]:
        """Give a client what it waits for; nothing comes back while it wants something else."""
        try:
            if (update := group.go_on(name, answer)) is not None:
                yield name, update
        except WorldBroke as error:
            self._tell(name, group.rounds[name], error)
            group.give_up(name)
            yield name, WorldBroke

    def _tell(self, client: str, round: int, error: WorldBroke) -> None:
        message = f"client '{client}': {error}"
        about = {"client": client, "round": round}
        self.tracker.record(Warned(kind="world_broke", message=message, details=about))

    def _teach_group(self, group: _Group, wanted: Mapping[str, Teach]) -> dict[str, Learned | None]:
        """What comes of the lessons of clients whose turn it is; those whose world broke are missing."""
        lessons: dict[str, Lesson | None] = {}
        for name, teach in wanted.items():
            self.tracker.record(ClientLearning(client=name, round=group.rounds[name]))
            try:
                lessons[name] = teach.lesson()
            except WorldBroke as error:
                self._tell(name, group.rounds[name], error)
        given = [lesson for lesson in lessons.values() if lesson is not None]
        learned = iter(self.teach(given, max(group.rounds[name] for name in wanted)))
        return {name: None if lesson is None else next(learned) for name, lesson in lessons.items()}

    def _in_lessons(self, names: Sequence[str], until: float | None) -> Iterator[Sequence[str]]:
        """In groups of even size. Where time may run out, who learned is not kept waiting for others."""
        most = checked_at_once(self.learner) if until is None and isinstance(self.learner, LearnsTogether) else 1
        number = -(-len(names) // most)
        for group in range(number):
            yield names[group * len(names) // number : (group + 1) * len(names) // number]

    def _episode_finished(self, trajectory: Trajectory) -> None:
        self.tracker.record(
            EpisodeFinished(client=trajectory.client, purpose=trajectory.purpose, outcome=trajectory.outcome)
        )


class _Group:
    """Clients that are served together, and what each of them waits for."""

    def __init__(self) -> None:
        self.works: dict[str, Work] = {}
        self.rounds: dict[str, int] = {}
        self.plays: dict[str, tuple[str, Sequence[Episode]]] = {}
        """Episodes, and the digest of the adapter that plays them."""
        self.adapters: dict[str, Adapter] = {}
        """One copy of each, however many clients play with it."""
        self.meanwhile: list[Callable[[], Sequence[Ahead]]] = []
        """What can be done for them while they are played."""
        self.lessons: dict[str, Teach] = {}

    @property
    def planned(self) -> int:
        return sum(len(episodes) for _, episodes in self.plays.values())

    def wait(self, name: str, asked: Play | Teach) -> None:
        if isinstance(asked, Teach):
            self.lessons[name] = asked
        else:
            with during("adapter"):
                digest = asked.adapter.digest()
            self.adapters.setdefault(digest, asked.adapter)
            self.plays[name] = digest, asked.episodes
            self.meanwhile.append(asked.meanwhile)

    def go_on(self, name: str, answer: list[Trajectory] | Learned | None) -> ClientUpdate | None:
        """Give a client what it waits for: its update, or None while it wants something else."""
        try:
            self.wait(name, self.works[name].send(answer))
            return None
        except StopIteration as finished:
            del self.works[name]
            update: ClientUpdate = finished.value
            return update

    def give_up(self, name: str) -> None:
        """End a client's work where it is."""
        self.works.pop(name).close()
