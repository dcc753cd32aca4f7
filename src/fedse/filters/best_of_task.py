"""One success of each task."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.filters.success import Success
from fedse.types import Trajectory


class BestOfTask:
    """Keeps one success for each task: the one with the best score, then the fewest steps, then the first."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        best: dict[tuple[str, str], Trajectory] = {}
        for trajectory in Success().keep(trajectories):
            key = (trajectory.world, trajectory.task)
            if key not in best or _merit(trajectory) > _merit(best[key]):
                best[key] = trajectory
        chosen = {id(trajectory) for trajectory in best.values()}
        return [trajectory for trajectory in trajectories if id(trajectory) in chosen]


def _merit(trajectory: Trajectory) -> tuple[float, int]:
    return trajectory.score, -len(trajectory.steps)
