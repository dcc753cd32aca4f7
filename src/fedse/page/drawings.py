"""What a world looked like at each step of a trajectory: its actions are played again, and have to be answered the same."""

from __future__ import annotations

from threading import Lock
from typing import Any

from fedse.errors import FedseError
from fedse.experiments.components import make_worlds
from fedse.experiments.options import Experiment
from fedse.page.ansi import Piece, pieces
from fedse.types import Trajectory
from fedse.worlds.answers import BREAKING
from fedse.worlds.contract import UnderContract
from fedse.worlds.foreign.adapter import ForeignWorld
from fedse.worlds.world import World

Drawn = dict[str, Any]


class Drawings:
    """Worlds are made when they are asked for and kept, for one request at a time."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._worlds: dict[tuple[str, str], World | str] = {}
        self._lock = Lock()

    def of(self, trajectory: Trajectory) -> Drawn:
        """Pieces of coloured text before each step and after the last; a note where there are none, or not all."""
        with self._lock:
            world = self._world(trajectory.client, trajectory.world)
            if isinstance(world, str):
                return {"drawings": [], "note": world}
            drawn: list[tuple[Piece, ...]] = []
            try:
                note = _play(world, trajectory, drawn)
            except BREAKING as error:
                note = f"The world broke when it was played again ({type(error).__name__})."
            return {"drawings": drawn, "note": note}

    def _world(self, client: str, label: str) -> World | str:
        """The world, or why there is none."""
        if (client, label) not in self._worlds:
            self._worlds[client, label] = self._made(client, label)
        return self._worlds[client, label]

    def _made(self, client: str, label: str) -> World | str:
        origin = self.experiment.holdings.get(client, {}).get(label)
        if origin is None:
            return "The experiment has no such world."
        options = self.experiment.clients[origin.client]
        choice = dict(zip(options.labels, options.worlds, strict=True))[origin.label]
        if choice.foreign:
            return (
                f"The world '{choice.name}' is not part of fedse, and looking at a run loads no code that it names: "
                "`fedse view --own-worlds` does, and draws it."
            )
        try:
            alone = options.model_copy(update={"worlds": [choice]})
            (make_world,) = make_worlds(origin.client, alone, {}).values()
            world = make_world()
        except FedseError as error:
            return f"The world cannot be made here, so it cannot be drawn: {error}"
        if isinstance(world.world if isinstance(world, UnderContract) else world, ForeignWorld):
            return "This world has no drawing of its own."
        return world


def _play(world: World, trajectory: Trajectory, drawn: list[tuple[Piece, ...]]) -> str:
    """Why it was not drawn to the end, or nothing."""
    observation, _ = world.reset(options={"task": trajectory.task})
    for number, step in enumerate(trajectory.steps, start=1):
        if observation != step.observation:
            return f"Played again, the world says something else at step {number}: it is not drawn from there on."
        drawn.append(pieces(world.drawing()))
        observation, _, terminated, truncated, _ = world.step(step.action)
        if (terminated or truncated) and number < len(trajectory.steps):
            return f"Played again, the episode ends at step {number}: it is not drawn from there on."
    drawn.append(pieces(world.drawing()))
    return ""
