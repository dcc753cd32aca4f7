"""Another world, a few turns of it: who only wants to see how something begins need not play it to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedse.worlds.world import Turn, World


@dataclass(frozen=True)
class MakeCutShort:
    """Makes the worlds of another maker, with so many turns."""

    make: Callable[[], World]
    turns: int

    def __call__(self) -> CutShort:
        return CutShort(self.make(), self.turns)


class CutShort(World):
    """Plays like the world within, and is over after some turns."""

    name = "cut_short"
    version = 1

    def __init__(self, world: World, turns: int) -> None:
        super().__init__()
        self.world = world
        self.turns = turns

    @property
    def rules(self) -> str:
        return self.world.rules

    @property
    def turn_limit(self) -> int:
        return self.turns

    def begin(self, task: str) -> str:
        return self.world.reset(options={"task": task})[0]

    def act(self, action: str) -> Turn:
        observation, _, terminated, truncated, info = self.world.step(action)
        over = terminated or truncated
        return Turn(observation, bool(info["valid"]), over, bool(over and info["success"]), info.get("score", 0.0))

    def legal_actions(self) -> list[str] | None:
        return self.world.legal_actions()

    def open_actions(self) -> list[tuple[str, str]]:
        return self.world.open_actions()

    def state(self) -> Any:
        return self.world.save()

    def set_state(self, state: Any) -> None:
        self.world.restore(state)
