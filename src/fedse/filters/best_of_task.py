"""One success of each task."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.filters.success import Success
from fedse.types import Purpose, Trajectory


class BestOfTask:
    """Keeps one success for each task: the one with the best score, then the fewest steps, then the first. What a rescue
    made does not compete with attempts: of it, too, one is kept for each task."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        best: dict[tuple[str, str, Purpose], Trajectory] = {}
        for trajectory in Success().keep(trajectories):
            # A correction has the score and the steps of the success that it is made of, and would never be kept.
            key = (trajectory.world, trajectory.task, trajectory.purpose)
            if key not in best or _merit(trajectory) > _merit(best[key]):
                best[key] = trajectory
        chosen = {id(trajectory) for trajectory in best.values()}
        return [trajectory for trajectory in trajectories if id(trajectory) in chosen]


def _merit(trajectory: Trajectory) -> tuple[float, int]:
    return trajectory.score, -len(trajectory.steps)
