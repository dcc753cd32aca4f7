"""What a client's buffer begins with: demonstrations by the world's expert (the paper's way), or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.protocols import Chat
from fedse.rollouts.replies import compose
from fedse.seeds import generator
from fedse.stopwatch import during
from fedse.types import Outcome, Purpose, Step, Task, Trajectory
from fedse.worlds.answers import BREAKING, finite_number, plain_text, tasks_of
from fedse.worlds.world import World


class NoDemonstrations:
    """Begin with an empty buffer: whatever is learned comes from the agent's own successes."""

    empty = True

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        del client, label, world, chat, seed
        return []


class Demonstrations:
    """Successful episodes of the world's expert on training tasks, tokenised once."""

    bounded_by = "tasks"

    class Options(PluginOptions):
        tasks: int = Field(default=200, ge=1)
        """Training tasks of each world that the expert shows; fewer where the world has fewer."""

    def __init__(self, tasks: int = 200) -> None:
        self.tasks = tasks

    def size(self, client: str, label: str, world: World) -> int:
        del client, label
        return min(self.tasks, len(tasks_of(world, "train")))

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        training = tasks_of(world, "train")
        order = generator(seed, client, label, "demonstrations").permutation(len(training))
        shown = []
        for index in order[: self.tasks]:
            # A world that breaks under the expert is an error, not a demonstration; the others stand.
            with suppress(*BREAKING):
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
    rules = plain_text(world.rules, "what the rules say")
    steps: list[Step] = []
    while True:
        thought, action = choose(world)
        following, reward, terminated, truncated, info = world.step(action)
        said = plain_text(compose(thought, action), "what the expert says")
        seen, worth = plain_text(observation, "an observation"), finite_number(reward, "the reward")
        steps.append(Step(seen, said, thought, action, bool(info["valid"]), reward=worth))
        observation = following
        if terminated or truncated:
            break
    return demonstration(
        client,
        label,
        task.id,
        rules,
        steps,
        plain_text(observation, "an observation"),
        chat,
        outcome=Outcome.SUCCESS if info["success"] else Outcome.FAILURE,
        score=finite_number(info["score"], "the score"),
        category=task.category,
    )


def demonstration(
    client: str,
    label: str,
    task: str,
    rules: str,
    steps: Sequence[Step],
    closing: str,
    chat: Chat,
    *,
    outcome: Outcome = Outcome.SUCCESS,
    score: float = 1.0,
    attempt: int = 0,
    category: str = "",
) -> Trajectory:
    """An episode that the agent did not play itself, tokenised as if it had."""
    with during("text"):
        ids = chat.opening(rules)
        mask = [False] * len(ids)
        for step in steps:
            turn, reply = chat.turn(step.observation), chat.reply(step.reply)
            ids += [*turn, *reply]
            mask += [*[False] * len(turn), *[step.learned] * len(reply)]
    return Trajectory(
        client=client,
        world=label,
        task=task,
        purpose=Purpose.DEMONSTRATE,
        round=0,
        attempt=attempt,
        adapter="",
        steps=tuple(steps),
        closing=closing,
        outcome=outcome,
        score=score,
        token_ids=tuple(ids),
        train_mask=tuple(mask),
        rules=rules,
        category=category,
    )
