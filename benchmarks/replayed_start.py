"""What buffers begin with: as many successes as an experiment wants demonstrations, with recorded lengths.

A run's demonstrations are not in its journal, so successes of the recording stand in for them. With SmolLM2 these are 5 %
longer: 439 tokens on average over the five worlds, where the run's demonstrations have 416 (its report of round 1).
"""

from __future__ import annotations

from pydantic import Field
from replayed_world import END, TURN, ReplayedWorld, letters

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.protocols import Chat
from fedse.starts.demonstrations import demonstration, tokenised
from fedse.types import Step, Trajectory


class ReplayedStart:
    """Recorded successes in turn, each with words of its own."""

    bounded_by = "demonstrations"
    one_by_one = True

    class Options(PluginOptions):
        demonstrations: int = Field(ge=1)
        """Of each world."""

    def __init__(self, demonstrations: int) -> None:
        self.demonstrations = demonstrations

    def size(self, client: str, label: str, world: ReplayedWorld) -> int:
        del client, label, world
        return self.demonstrations

    def trajectories(self, client: str, label: str, world: ReplayedWorld, chat: Chat, seed: int) -> list[Trajectory]:
        del seed
        successes = world.recorded.successes
        if not successes:
            raise BadInput(f"start: nothing succeeds in the recording of '{world.options.of}'.")
        shown = []
        for number in range(self.demonstrations):
            task = f"shown-{number}"
            steps = [
                _step(observation, reply, world.options.of, task, turn)
                for turn, (observation, reply) in enumerate(successes[number % len(successes)].turns)
            ]
            shown.append(tokenised(demonstration(client, label, task, world.rules, steps, closing=""), chat))
        return shown


def _step(observation: int, reply: int, *name: str | int) -> Step:
    said = letters(reply - END, *name, "reply")
    return Step(letters(observation - TURN, *name), said, thought="", action=said, valid=True)
