"""Hindsight: a failed episode is a success at what it did reach, after LMA3 (Colas and others, arXiv 2305.12487).

The world says what that is, as a task that it makes (`World.achieved`), and the same actions are carried out again in that
task: what is remembered is this second episode, which tells its own goal from the beginning and ends where that was reached.
The replies are those that the agent sampled, word for word. In the paper a language model describes what was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedse.clients.site import Place, Site
from fedse.rollouts.replaying import relabelled, replay
from fedse.types import Adapter, Outcome, Played, Task, Trajectory
from fedse.worlds.answers import achieved


class Hindsight:
    """Makes successes of failures, at what these reached. A variant overrides `goal`."""

    needs_made_tasks = True

    def __init__(self, site: Site) -> None:
        self.site = site

    def rescue(self, explored: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        del entering
        yield from ()  # A rescue may ask for episodes of its own; this one has nothing to ask.
        taken = {(item.world, item.task, item.attempt) for item in explored}
        found: list[Trajectory] = []
        for item in explored:
            rescued = self._rescued(item) if item.outcome is Outcome.FAILURE else None
            # A curriculum may have explored the same made task.
            if rescued is not None and (key := (rescued.world, rescued.task, rescued.attempt)) not in taken:
                found.append(rescued)
                taken.add(key)
        return found

    def _rescued(self, failure: Trajectory) -> Trajectory | None:
        place = self.site.places[failure.world]
        goal = self.goal(place, failure)
        if goal is None:
            return None
        found = relabelled(failure, goal, place.world, self.site.chat)
        return found if found is not None and len(found.token_ids) <= self.site.context else None

    def goal(self, place: Place, failure: Trajectory) -> Task | None:
        """The task that a failure would have solved; one that it would not is left aside."""
        replay(place.world, failure)
        return achieved(place.world)
