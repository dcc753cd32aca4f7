"""The client's half of a round, as in the paper:

take the shared adapter -> measure it -> explore with it -> judge -> filter and remember -> learn -> send the adapter
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, islice

from fedse.adapters.plan import part_to_send, sent_layout
from fedse.clients.adapters import ClientAdapters
from fedse.clients.experience import Experience
from fedse.clients.site import Site
from fedse.errors import BadInput
from fedse.privacy.door import Door
from fedse.protocols import Curriculum, Judge, Probe, Shares
from fedse.types import (
    ClientUpdate,
    Episode,
    Outcome,
    Play,
    RoundTask,
    Teach,
    Trajectory,
    Vector,
    Work,
    WorldScore,
)

EVALUATION = "evaluation"
"""Name of the probe that measures success, whose scores are the round's."""


class Client:
    """Everything that happens at a site. The only thing it hands out is a `ClientUpdate`."""

    def __init__(
        self,
        site: Site,
        adapters: ClientAdapters,
        curriculum: Curriculum,
        judge: Judge,
        experience: Experience,
        probes: Mapping[str, Probe],
        door: Door,
    ) -> None:
        """The probe named `EVALUATION` is there in every client."""
        self.site = site
        self.adapters = adapters
        self.curriculum = curriculum
        self.judge = judge
        self.experience = experience
        self.probes = probes
        self.door = door
        self._sharing = [item for item in (curriculum, judge, *probes.values()) if isinstance(item, Shares)]

    @property
    def name(self) -> str:
        return self.site.name

    def work(self, task: RoundTask) -> Work:
        """Do a task. What is to be played and learned is asked of the engine, which serves many clients at once.

        No adapter is held while others have their turn: there may be a thousand clients.
        """
        for plugin in self._sharing:
            plugin.take(task.round, task.shared.get(plugin.shares, {}))
        entering = partial(self.adapters.entering, task)
        plans = [probe.plan(task) for probe in self.probes.values()]
        to_explore: Sequence[Episode] = []
        if task.kind == "train" and self.site.explores:
            to_explore = yield from self.curriculum.plan(task, self.experience.past(task.round))
        played = yield Play(entering(), [*chain.from_iterable(plans), *to_explore])

        episodes = iter(played)
        measured = [list(islice(episodes, len(plan))) for plan in plans]
        explored = list(episodes)
        scores = {
            name: tuple(probe.score(task, own))
            for (name, probe), own in zip(self.probes.items(), measured, strict=True)
        }
        if task.kind == "evaluate":
            if played:
                self.experience.log(task.name, played)
            return self._release(task, scores)

        judged = yield from self.judge.judge([item for item in explored if item.outcome is not Outcome.ERROR], entering)
        memory = self.experience.of_round(task.round, [*chain.from_iterable(measured)], with_judged(explored, judged))
        learned = yield Teach(lambda: memory.lesson(entering()))
        adapter, metrics = learned or (None, {})
        vector = self.adapters.leaving(task, memory.start, adapter)
        if adapter is not None:
            memory.learned()
        return self._release(task, scores, vector, memory.counts, metrics)

    def _release(
        self,
        task: RoundTask,
        scores: Mapping[str, tuple[WorldScore, ...]],
        vector: Vector | None = None,
        counts: Mapping[str, int] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> ClientUpdate:
        update = ClientUpdate(
            client=self.name,
            round=task.round,
            vector=vector,
            layout=sent_layout(task, self.adapters.plan),
            counts=counts or {},
            metrics=metrics or {},
            scores=scores[EVALUATION],
            task=task.name,
            shared={plugin.shares: plugin.give(task.round) for plugin in self._sharing if task.kind == "train"},
            probes={name: found for name, found in scores.items() if name != EVALUATION},
        )
        return self.door.release(update, part_to_send(task, self.adapters.plan))


def with_judged(explored: Sequence[Trajectory], judged: Sequence[Trajectory]) -> list[Trajectory]:
    """What was explored, each episode that did not end in an error as it was judged."""
    following = iter(judged)
    found = [item if item.outcome is Outcome.ERROR else next(following, None) for item in explored]
    if any(item is None for item in found) or next(following, None) is not None:
        raise BadInput("judge: it has to return every trajectory that it was given, once and in order.")
    return [item for item in found if item is not None]
