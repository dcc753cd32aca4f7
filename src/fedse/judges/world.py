"""The world's own idea of worth, and nobody else's: the paper's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fedse.clients.site import Site
from fedse.types import Adapter, Played, Trajectory

WORLD = "world"


class WorldJudge:
    """The score with which an episode ended. A variant overrides `rewards`."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def judge(self, trajectories: Sequence[Trajectory], entering: Callable[[], Adapter]) -> Played:
        del entering
        yield from ()  # A judge may ask for episodes of its own; this one has nothing to ask.
        return [replace(item, rewards={**item.rewards, **self.rewards(item)}) for item in trajectories]

    def rewards(self, trajectory: Trajectory) -> dict[str, float]:
        """What it gives, by name."""
        return {WORLD: trajectory.score}
