"""No filter: the paper's ablation."""

from __future__ import annotations

from collections.abc import Sequence

from fedse.types import Trajectory


class KeepAll:
    """Keeps failures too: the paper's ablation without a filter."""

    one_by_one = True

    def keep(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        return list(trajectories)
