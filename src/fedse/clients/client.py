"""The client's half of a round, as in the paper:

take the shared adapter -> measure it -> explore with it -> judge -> filter and remember -> learn -> send the adapter

Before judging, something may be made of failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, islice

from fedse.adapters.finite import is_finite
from fedse.adapters.plan import part_to_send, sent_layout
from fedse.clients.adapters import ClientAdapters
from fedse.clients.experience import Experience
from fedse.clients.guards import (
    asked_of,
    checked_measuring,
    checked_plan,
    checked_rescue,
    checked_scores,
    plain,
    with_adapter,
    with_rewards,
)
from fedse.clients.lessons import teach
from fedse.clients.requests import Work
from fedse.clients.site import Site
from fedse.errors import BadInput
from fedse.evaluation.learned_shares import LEARNED_FROM
from fedse.evaluation.side_by_side import AFTER_LEARNING, AS_BROADCAST
from fedse.privacy.door import Door
from fedse.protocols import Curriculum, Judge, LearnedProbe, Probe, Rescue, ScoresAhead, Shares
from fedse.types import (
    Ahead,
    ClientUpdate,
    Episode,
    Outcome,
    Play,
    RoundTask,
    Vector,
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
        rescue: Rescue,
        judge: Judge,
        experience: Experience,
        probes: Mapping[str, Probe],
        learned_probes: Mapping[str, LearnedProbe],
        door: Door,
        learned_by_world: bool = False,
    ) -> None:
        """The probe named `EVALUATION` is there in every client. `learned_probes` measure what was learned, by the names
        under which they tell; that of `AFTER_LEARNING` plans tasks that are among those of `EVALUATION`. `learned_by_world`
        tells how much of each world was learned from."""
        self.site = site
        self.adapters = adapters
        self.curriculum = curriculum
        self.rescue = rescue
        self.judge = judge
        self.experience = experience
        self.probes = probes
        self.learned_probes = learned_probes
        self.door = door
        self.learned_by_world = learned_by_world
        telling = adapters.own is None and site.learns
        plugins = (curriculum, rescue, judge, *probes.values())
        self._sharing = [item for item in plugins if telling and isinstance(item, Shares)]
        names = [plugin.shares for plugin in self._sharing]
        if len(set(names)) < len(names):
            raise BadInput(f"two plug-ins share under the same name ({', '.join(names)}): give each a name of its own.")

    @property
    def name(self) -> str:
        return self.site.name

    def work(self, task: RoundTask) -> Work:
        """Do a task. What is to be played and learned is asked of the engine, which serves many clients at once.

        No adapter is held while others have their turn: there may be a thousand clients.
        """
        self.door.admit(task)
        found = yield from self.adapters.tried(task, self.site)
        entering = partial(self.adapters.entering, task, found)
        if task.kind == "train":
            for plugin in self._sharing:
                plugin.take(task.round, plain(task.shared.get(plugin.shares, {})))
        plans = [checked_measuring(name, probe.plan(task)) for name, probe in self.probes.items()]
        to_explore: Sequence[Episode] = []
        if task.kind == "train" and self.site.explores:
            planned = self.curriculum.plan(task, self.experience.past(task.round))
            asking = with_adapter(asked_of(self.curriculum, planned), entering)
            to_explore = checked_plan(self.site, task, (yield from asking))
        played = yield Play(entering(), [*chain.from_iterable(plans), *to_explore], partial(self._meanwhile, task))

        episodes = iter(played)
        measured = {name: list(islice(episodes, len(plan))) for name, plan in zip(self.probes, plans, strict=True)}
        explored = list(episodes)
        scores = {
            name: checked_scores(self.site, name, self.probes[name].score(task, own)) for name, own in measured.items()
        }
        tested = measured.pop(EVALUATION)
        if AFTER_LEARNING in self.learned_probes and task.split == "validation":
            same_tasks = self.learned_probes[AFTER_LEARNING].score(task, tested)
            scores[AS_BROADCAST] = checked_scores(self.site, AS_BROADCAST, same_tasks)
        self.experience.log(f"probes-{task.name}", [*chain.from_iterable(measured.values())])
        if task.kind == "evaluate":
            self.experience.log(task.name, tested)
            return self._release(task, scores)

        finished = [item for item in explored if item.outcome is not Outcome.ERROR]
        made = yield from asked_of(self.rescue, self.rescue.rescue(finished, entering))
        rescued = checked_rescue(self.site, finished, made)
        judged = yield from asked_of(self.judge, self.judge.judge([*finished, *rescued], entering))
        lived = with_rewards([*explored, *rescued], judged)
        memory = self.experience.of_round(task.round, tested, lived[: len(explored)], lived[len(explored) :])
        learned, metrics = (yield from teach(self.adapters.lessons(task, found), memory)) or (None, {})
        # Whatever came of a lesson that diverged: as if there had been none, the client keeps what it had.
        adapter = learned if learned is not None and is_finite(learned) else None
        again = {name: checked_measuring(name, probe.plan_learned(task)) for name, probe in self.learned_probes.items()}
        if adapter is not None and any(again.values()):
            played = iter((yield Play(self.adapters.learned(adapter), [*chain.from_iterable(again.values())])))
            for name, plan in again.items():
                if own := list(islice(played, len(plan))):
                    self.experience.log(f"{name}-{task.name}", own)
                scores[name] = checked_scores(self.site, name, self.learned_probes[name].score(task, own))
        if self.learned_by_world and adapter is not None:
            scores[LEARNED_FROM] = tuple(memory.by_world())
        vector = self.adapters.leaving(task, memory.start, adapter, found)
        if adapter is not None:
            memory.note_learned(adapter)
        elif learned is not None:
            memory.note_diverged()
            vector = self.adapters.diverged(task, learned)
        return self._release(task, scores, vector, memory.counts, metrics)

    def _meanwhile(self, task: RoundTask) -> Sequence[Ahead]:
        """What can be done in other processes while the episodes of a task are played."""
        scoring = [item.ahead(task) for item in self.probes.values() if isinstance(item, ScoresAhead)]
        return [*chain.from_iterable(scoring), *(self.experience.ahead() if task.kind == "train" else ())]

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
            shared={plugin.shares: plain(plugin.give(task.round)) for plugin in self._sharing if task.kind == "train"},
            probes={name: found for name, found in scores.items() if name != EVALUATION},
        )
        return self.door.release(update, part_to_send(task, self.adapters.plan), task)
