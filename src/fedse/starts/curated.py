"""Few demonstrations, chosen from many: LIMI (arXiv 2509.17567) found 78 to be worth more than ten thousand.

Its authors chose by hand. Here the choice is greedy under a budget of tokens, so that two ways to choose can be compared at
equal cost; `random` is the control.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedse.plugins import PluginOptions
from fedse.protocols import Chat
from fedse.rollouts.stepping import MakeWorld
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Ahead, Trajectory
from fedse.worlds.world import World

By = Literal["coverage", "shortest", "random"]


class Curated:
    """Demonstrations of the world's expert that together have at most so many tokens of the agent."""

    bounded_by = "tasks"

    class Options(PluginOptions):
        tasks: int = Field(default=200, ge=1)
        """Training tasks of each world that the expert solves, and from which is chosen."""
        agent_tokens: int = Field(default=2000, ge=1)
        """Tokens of the agent that the chosen ones have together, at most; one demonstration there is in any case."""
        by: By = "coverage"
        """`coverage` takes what shows most categories and actions that were not shown yet, for its tokens; `shortest` what
        has the fewest tokens; `random` what was drawn first."""

    def __init__(self, tasks: int = 200, agent_tokens: int = 2000, by: By = "coverage") -> None:
        self._all = Demonstrations(tasks)
        self._agent_tokens, self._by = agent_tokens, by

    def ahead(self, client: str, label: str, make_world: MakeWorld, seed: int) -> list[Ahead]:
        return self._all.ahead(client, label, make_world, seed)

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        return chosen(self._all.trajectories(client, label, world, chat, seed), self._agent_tokens, self._by)


def chosen(shown: Sequence[Trajectory], agent_tokens: int, by: By) -> list[Trajectory]:
    """Those that are taken, in the order in which they are. What does not fit any more is passed over."""
    found: list[Trajectory] = []
    left, seen, room = list(shown), set[str](), agent_tokens
    while left:
        merits = [_merit(by, item, seen) for item in left]
        best = left.pop(merits.index(max(merits)))  # Of equals, the first.
        if best.agent_tokens <= room or not found:
            found.append(best)
            seen |= _shows(best)
            room -= best.agent_tokens
    return found


def _merit(by: By, trajectory: Trajectory, seen: set[str]) -> float:
    if by == "coverage":
        return len(_shows(trajectory) - seen) / trajectory.agent_tokens
    return -trajectory.agent_tokens if by == "shortest" else 0.0


def _shows(trajectory: Trajectory) -> set[str]:
    return {f"category {trajectory.category}", *(f"action {step.action}" for step in trajectory.steps)}
