"""Hindsight: a failed episode is a success at what it did reach, after LMA3 (Colas and others, arXiv 2305.12487).

The world says what that is, as a task that it makes (`World.achieved`), and the same actions are carried out again in that
task: what is remembered is this second episode, which tells its own goal from the beginning and ends where that was reached.
The replies are those that the agent sampled, word for word. In the paper a language model describes what was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
        there: dict[tuple[str, str], list[Trajectory]] = {}
        for item in explored:
            there.setdefault((item.world, item.task), []).append(item)
        found: list[Trajectory] = []
        for item in explored:
            rescued = self._rescued(item) if item.outcome is Outcome.FAILURE else None
            if rescued is not None:
                # A curriculum may have explored the same made task.
                others = there.setdefault((rescued.world, rescued.task), [])
                numbered = _beside(others, rescued)
                if numbered is not None:
                    found.append(numbered)
                    others.append(numbered)
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


def _beside(others: Sequence[Trajectory], rescued: Trajectory) -> Trajectory | None:
    """With a number that none of the others at the task has; None where its own is that of an attempt and the episode is
    there already."""
    if all(other.attempt != rescued.attempt for other in others):
        return rescued
    if any(other.token_ids == rescued.token_ids for other in others):
        return None
    return replace(rescued, attempt=max(other.attempt for other in others) + 1)
