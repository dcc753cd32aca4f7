"""Successes alone: the paper's rule."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.types import Outcome, Trajectory


class Success:
    """Keeps what the world calls a success: the paper's rule."""

    one_by_one = True

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return [trajectory for trajectory in trajectories if trajectory.outcome is Outcome.SUCCESS]
