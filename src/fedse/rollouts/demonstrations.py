"""What a client's buffer begins with: demonstrations by the world's expert (the paper's way), or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.protocols import Chat
from fedse.rollouts.replies import compose
from fedse.seeds import generator
from fedse.types import Outcome, Purpose, Step, Task, Trajectory
from fedse.worlds.world import World


class NoDemonstrations:
    """Begin with an empty buffer: whatever is learned comes from the agent's own successes."""

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        del client, label, world, chat, seed
        return []


class Demonstrations:
    """Successful episodes of the world's expert on training tasks, tokenised once."""

    class Options(PluginOptions):
        tasks: int = Field(default=200, ge=1)
        """Training tasks of each world that the expert shows; fewer where the world has fewer."""

    def __init__(self, tasks: int = 200) -> None:
        self.tasks = tasks

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        training = world.tasks("train")
        order = generator(seed, client, label, "demonstrations").permutation(len(training))
        shown = []
        for index in order[: self.tasks]:
            # A world that breaks under the expert is an error, not a demonstration; the others stand.
            with suppress(Exception):
                shown.append(demonstrate(client, label, world, training[index], chat))
        found = [trajectory for trajectory in shown if trajectory.outcome is Outcome.SUCCESS]
        if not found:
            raise BadInput(
                f"start: the expert of world '{label}' solved none of {min(self.tasks, len(order))} training tasks, so "
                f"client '{client}' has no demonstrations: use `start: none`, or check the world."
            )
        return found


def demonstrate(
    client: str,
    label: str,
    world: World,
    task: Task,
    chat: Chat,
    choose: Callable[[World], tuple[str, str]] = lambda world: world.expert(),
) -> Trajectory:
    """The episode of whoever chooses thoughts and actions (the expert), in the same form as the agent's own."""
    observation, _ = world.reset(options={"task": task.id})
    ids = chat.opening(world.rules)
    mask = [False] * len(ids)
    steps: list[Step] = []
    while True:
        thought, action = choose(world)
        text = compose(thought, action)
        turn, reply = chat.turn(observation), chat.reply(text)
        ids += [*turn, *reply]
        mask += [*[False] * len(turn), *[True] * len(reply)]
        following, _, terminated, truncated, info = world.step(action)
        steps.append(Step(observation, text, thought, action, bool(info["valid"])))
        observation = following
        if terminated or truncated:
            break
    return Trajectory(
        client=client,
        world=label,
        task=task.id,
        purpose=Purpose.DEMONSTRATE,
        round=0,
        attempt=0,
        adapter="",
        steps=tuple(steps),
        closing=observation,
        outcome=Outcome.SUCCESS if info["success"] else Outcome.FAILURE,
        score=float(info["score"]),
        token_ids=tuple(ids),
        train_mask=tuple(mask),
    )
