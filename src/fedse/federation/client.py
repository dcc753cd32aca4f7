"""One site: its worlds, its buffer, its journal.

Engines call `plan`, play the episodes and give them to `review`, teach the lesson that comes of it, and give what was
learned to `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fedse.adapters.own import OwnAdapters
from fedse.adapters.packing import pack, unpack
from fedse.adapters.personal import PersonalOptions, first_pair
from fedse.adapters.plan import TensorPlan, frozen, part_to_send, private, sent
from fedse.adapters.private import PrivatePart
from fedse.errors import BadInput
from fedse.evaluation.metrics import score
from fedse.experience.buffer import Buffer
from fedse.experience.journal import Journal
from fedse.plugins import PluginOptions
from fedse.privacy.outgoing import Outgoing
from fedse.protocols import Chat, Filter, Learner, Sampling, Start
from fedse.rollouts.player import Episode
from fedse.seeds import generator, stream
from fedse.stopwatch import during
from fedse.types import (
    Adapter,
    ClientUpdate,
    Learned,
    Lesson,
    Outcome,
    Purpose,
    RoundTask,
    Split,
    Task,
    Trajectory,
    WorldScore,
)
from fedse.worlds import reference
from fedse.worlds.world import World


class ExplorationOptions(PluginOptions):
    """How a client looks for new experience. Temperature 1 is the paper's."""

    tasks: int = Field(default=50, ge=1)
    """Training tasks of each world that are explored in a round, drawn anew every round."""
    attempts: int = Field(default=1, ge=1)
    """Attempts at each task."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature."""


class EvaluationOptions(PluginOptions):
    """How the adapter that enters a round is measured: greedy, frozen, on tasks nobody learns from."""

    tasks: int = Field(default=40, ge=1)
    """Validation tasks of each world before the first and after the last round."""
    between: int | None = Field(default=None, ge=0)
    """Validation tasks in the rounds between; as many as `tasks` when not set, none when 0."""
    test_tasks: int | None = Field(default=200, ge=0)
    """Test tasks of each world, played once after the last round; all of them when null, no test when 0."""


class Origin(NamedTuple):
    """The client that a world was written under in the experiment, and its label there.

    Random numbers are named by it, so a world meets the same tasks and draws whoever holds it.
    """

    client: str
    label: str


@dataclass(frozen=True)
class Reviewed:
    """A client's task after the episodes were played and before anything was learned from them."""

    task: RoundTask
    adapter: Adapter
    counts: Mapping[str, int]
    scores: tuple[WorldScore, ...]
    lesson: Lesson | None
    """None: there is nothing to learn from, or this is no round of learning."""


class Client:
    """Everything that happens at a site. The only thing it hands out is a `ClientUpdate`."""

    def __init__(
        self,
        name: str,
        worlds: Mapping[str, Callable[[], World]],
        chat: Chat,
        start: Start,
        filter: Filter,
        buffer: Buffer,
        journal: Journal,
        learner: Learner,
        exploration: ExplorationOptions | None,
        evaluation: EvaluationOptions,
        seed: int,
        outgoing: Outgoing,
        plan: TensorPlan,
        private_part: PrivatePart,
        personal: PersonalOptions,
        own: OwnAdapters | None = None,
        origins: Mapping[str, Origin] | None = None,
        learns: bool = True,
    ) -> None:
        """Without `exploration` it learns from what its buffer begins with; with `own` it shares nothing."""
        self.name = name
        self.worlds = worlds
        self.chat = chat
        self.start = start
        self.filter = filter
        self.buffer = buffer
        self.journal = journal
        self.learner = learner
        self.exploration = exploration
        self.evaluation = evaluation
        self.seed = seed
        self.outgoing = outgoing
        self.tensors = plan
        self.private_part = private_part
        self.personal = personal
        self.own = own
        self.origins = origins or {label: Origin(name, label) for label in worlds}
        self.learns = learns
        self._references = cache(self._measure_references)

    def adapter(self, task: RoundTask) -> Adapter:
        """What this client plays with and learns from: the broadcast adapter with its private tensors in their place, or
        its own adapter if it shares nothing."""
        behind = task.round - 1 if task.kind == "train" else task.round
        if self.own is not None and behind > 0:
            adapter = self.own.read(behind)
        else:
            adapter = unpack(task.vector, task.layout, task.config)
            kept = self.private_part.before(behind + 1)
            if self.personal.rank and not kept:
                kept = first_pair(adapter, self.personal.rank, self.name, self.seed)
            adapter = Adapter({**adapter.tensors, **kept}, adapter.config)
        return replace(adapter, frozen=frozen(adapter, self.tensors))

    def plan(self, task: RoundTask) -> list[Episode]:
        """The episodes this client wants played with its adapter of the round: evaluation, then exploration."""
        episodes = []
        for label in self.worlds:
            if task.world in ("", label):
                held_out = self._held_out(label, task)
                episodes += [self._episode(label, item, Purpose.EVALUATE, task.round, 0, 0.0) for item in held_out]
        if task.kind == "train" and self.exploration is not None and self.learns:
            for label in self.worlds:
                training = self._instance(label).tasks("train")
                origin = self.origins[label]
                name = (self.seed, origin.client, task.round, origin.label, "explore")
                order = generator(*name).permutation(len(training))
                for index in order[: self.exploration.tasks]:
                    for attempt in range(self.exploration.attempts):
                        episodes.append(
                            self._episode(
                                label,
                                training[index],
                                Purpose.EXPLORE,
                                task.round,
                                attempt,
                                self.exploration.temperature,
                            )
                        )
        return episodes

    def review(self, task: RoundTask, adapter: Adapter, trajectories: Sequence[Trajectory]) -> Reviewed:
        """Measure what was planned and played, filter and remember it."""
        if task.kind == "train":
            try:
                counts, lesson = self._remember(task, adapter, trajectories)
            finally:
                self.buffer.close()
            return Reviewed(task, adapter, counts, self._scores(task, trajectories), lesson)
        if trajectories:
            with during("disk"):
                self.journal.write(task.name, trajectories)
        return Reviewed(task, adapter, {}, self._scores(task, trajectories), None)

    def _remember(
        self, task: RoundTask, adapter: Adapter, trajectories: Sequence[Trajectory]
    ) -> tuple[dict[str, int], Lesson | None]:
        explored = [item for item in trajectories if item.purpose is Purpose.EXPLORE]
        finished = [item for item in explored if item.outcome is not Outcome.ERROR]
        kept = self.filter.keep(finished)

        if self.learns:
            self.begin()
        with during("disk"):
            added = self.buffer.remember(task.round, kept)
            self.journal.write(f"{task.round:04d}", trajectories)
        lesson = self.lesson(task.round, adapter)

        counts = {
            "explored": len(explored),
            "errors": len(explored) - len(finished),
            "successes": sum(item.outcome is Outcome.SUCCESS for item in finished),
            "kept": len(kept),
            "added": added,
            "buffer": len(self.buffer),
            "learned_from": 0,
            "steps": sum(len(item.steps) for item in finished),
            "invalid": sum(item.invalid_actions for item in finished),
            "agent_tokens": sum(item.agent_tokens for item in finished),
        }
        if not self.learns:
            counts["only_measures"] = 1
        return counts, lesson

    def lesson(self, round: int, adapter: Adapter) -> Lesson | None:
        """What this client learns in a round from an adapter; None without experience."""
        with during("disk"):
            experience = self.buffer.read(round)
        return Lesson(adapter, experience, stream(self.seed, self.name, round, "learn")) if experience else None

    def taught(self, lesson: Lesson) -> Learned | None:
        """What comes of a lesson by itself."""
        with during("learning"):
            learned = self.learner.learn(*lesson)
        if learned is not None:
            self._left_alone(lesson.start, learned[0])
        return learned

    def answer(self, reviewed: Reviewed, learned: Learned | None) -> ClientUpdate:
        """What leaves the site, after its lesson if there was one. Nothing leaves in another way."""
        task, adapter, counts = reviewed.task, reviewed.adapter, dict(reviewed.counts)
        following, vector, metrics = adapter, None, {}
        if learned is not None and reviewed.lesson is not None:
            following, metrics = learned[0], dict(learned[1])
            self._left_alone(adapter, following)
            self.private_part.keep(task.round, private(following, self.tensors))
            self._note_lesson(task.round)
            with during("adapter"):
                vector = pack(sent(following, self.tensors)) if self.own is None else None
            counts["learned_from"] = len(reviewed.lesson.trajectories)
        if task.kind == "train" and self.own is not None:
            self.own.write(task.round, following)
        layout = sent(adapter, self.tensors).layout
        update = ClientUpdate(self.name, task.round, vector, layout, counts, metrics, reviewed.scores, task.name)
        return self.outgoing.release(update, part_to_send(task, self.tensors))

    def _note_lesson(self, round: int) -> None:
        with during("disk"):
            try:
                self.buffer.learned(round)
            finally:
                self.buffer.close()

    def _left_alone(self, before: Adapter, after: Adapter) -> None:
        for name in sorted(before.frozen):
            if not np.array_equal(before.tensors[name], after.tensors[name]):
                raise BadInput(
                    f"learner: {type(self.learner).__name__} changed {name}, which the aggregator keeps frozen: use the "
                    "learner 'imitation', or an aggregator with which clients train everything."
                )

    def begin(self) -> None:
        """Put the demonstrations into an empty buffer, once."""
        if 0 in self.buffer.rounds():
            return
        with during("world"):
            shown = [
                replace(trajectory, client=self.name, world=label)
                for label, origin in self.origins.items()
                for trajectory in self.start.trajectories(*origin, self._instance(label), self.chat, self.seed)
            ]
        if shown:
            with during("disk"):
                self.buffer.remember(0, shown)

    def _instance(self, label: str) -> World:
        return _instance(self.worlds[label])

    def _held_out(self, label: str, task: RoundTask) -> list[Task]:
        """The same tasks every time, in an order that does not depend on the run's seed, so that runs can be paired."""
        if task.split == "test":
            count = self.evaluation.test_tasks
        elif task.kind == "evaluate" or task.round == 1 or self.evaluation.between is None:
            count = self.evaluation.tasks
        else:
            count = self.evaluation.between
        tasks = self._instance(label).tasks(task.split)
        order = generator("held out", self._instance(label).name, task.split).permutation(len(tasks))
        return [tasks[index] for index in order[:count]]

    def _episode(
        self, label: str, task: Task, purpose: Purpose, round: int, attempt: int, temperature: float
    ) -> Episode:
        origin = self.origins[label]
        key = stream(self.seed, origin.client, round, origin.label, task.id, purpose, attempt)
        return Episode(self.name, label, self.worlds[label], task, purpose, round, attempt, Sampling(key, temperature))

    def _scores(self, task: RoundTask, trajectories: Sequence[Trajectory]) -> tuple[WorldScore, ...]:
        scores = []
        for label in self.worlds:
            played = [item for item in trajectories if item.world == label and item.purpose is Purpose.EVALUATE]
            if played:
                floor, ceiling = self._references(label, task.split, tuple(self._held_out(label, task)))
                scores.append(score(label, task.split, played, floor, ceiling))
        return tuple(scores)

    def _measure_references(self, label: str, split: Split, tasks: tuple[Task, ...]) -> tuple[float, float | None]:
        del split
        world = self._instance(label)
        with during("world"):
            return reference.floor(world, tasks), reference.ceiling(world, tasks) if world.has_expert else None


@lru_cache(maxsize=32)
def _instance(make_world: Callable[[], World]) -> World:
    """A world to ask for its tasks and its expert. Clients whose worlds are alike share it; few are kept."""
    with during("world"):
        return make_world()
