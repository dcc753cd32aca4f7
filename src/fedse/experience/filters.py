"""Which trajectories of a round are remembered. Errors never get here; the order is kept."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from fedse.plugins import PluginOptions
from fedse.types import Outcome, Trajectory


class Success:
    """Keeps what the world calls a success: the paper's rule."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [trajectory for trajectory in trajectories if trajectory.outcome is Outcome.SUCCESS]


class KeepAll:
    """Keeps failures too: the paper's ablation without a filter."""

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories)


class Threshold:
    """Keeps trajectories whose score reaches a bound, for worlds that give partial credit."""

    class Options(PluginOptions):
        score: float = Field(default=0.5, ge=0)
        """Least score of a trajectory that is kept."""

    def __init__(self, score: float = 0.5) -> None:
        self.score = score

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [trajectory for trajectory in trajectories if trajectory.score >= self.score]


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
