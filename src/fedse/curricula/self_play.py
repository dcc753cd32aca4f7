"""Tasks that the agent sets itself by playing, after asymmetric self-play (Sukhbaatar and others, arXiv 1703.05407).

The agent plays some training tasks, hotter if that is asked for. Where it misses the goal, the world says what it reached
instead (`World.achieved`): a task that those actions are known to solve. That is what the agent then explores, from the
beginning and without having seen them. Of the same proposal made twice the second counts for nothing; the rest of a round is
uniform. In the paper the one who proposes is a policy of its own, rewarded for what the other one fails at. Here it is the
same agent, and nothing is learned from its proposing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedse.clients.guards import ENTERING
from fedse.clients.site import Place, Site
from fedse.curricula.uniform import Uniform
from fedse.plugins import PluginOptions
from fedse.plugins.schedules import at
from fedse.protocols import Past
from fedse.rollouts.replaying import replay
from fedse.seeds import generator
from fedse.types import Episode, Outcome, Planned, Play, Purpose, RoundTask, Task, Trajectory
from fedse.worlds.answers import achieved


class SelfPlayOptions(PluginOptions):
    """How much of a round the agent proposes itself. The numbers are not the paper's."""

    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a round's tasks that may be the agent's own; as many episodes are played to propose them."""
    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of the episodes that propose; empty: that of `exploration`."""


class SelfPlay(Uniform):
    """Uniform, with tasks that the agent proposed by reaching something. A variant overrides `proposing` and `proposals`."""

    Options = SelfPlayOptions
    needs_made_tasks = True

    def __init__(self, site: Site, share: float = 0.5, temperature: float | None = None) -> None:
        super().__init__(site)
        self.share = share
        self.temperature = temperature
        self._proposed: dict[str, list[Task]] = {}

    def plan(self, task: RoundTask, past: Past) -> Planned:
        asked = {label: self.proposing(label, task.round) for label in self.site.places}
        played = iter((yield Play(ENTERING, [episode for own in asked.values() for episode in own])))
        self._proposed = {
            label: self.proposals(self.site.places[label], [next(played) for _ in own]) for label, own in asked.items()
        }
        return (yield from super().plan(task, past))

    def chosen(self, label: str, round: int, past: Past) -> list[Task]:
        return [*self._proposed[label], *super().chosen(label, round, past)]

    def proposals(self, place: Place, played: Sequence[Trajectory]) -> list[Task]:
        """What episodes reached that was not their goal, as far as the world takes it for a task."""
        found: dict[str, Task] = {}
        for item in played:
            if item.outcome is Outcome.FAILURE:
                replay(place.world, item)
                reached = achieved(place.world)
                if reached is not None:
                    found[reached.id] = reached
        return list(found.values())

    def proposing(self, label: str, round: int) -> list[Episode]:
        """What is played to propose something."""
        budget, place = self.site.exploration, self.site.places[label]
        assert budget is not None, "a site that explores nothing plans nothing"
        training = place.tasks("train")
        order = generator(self.site.seed, place.origin.client, round, place.origin.label, "self_play")
        heat = at(budget.temperature, round) if self.temperature is None else self.temperature
        first = order.permutation(len(training))[: int(self.share * budget.tasks + 0.5)]
        return [self.site.episode(label, training[number], Purpose.EVALUATE, round, 0, heat) for number in first]
