"""What a client's buffer begins with: demonstrations by the world's expert (the paper's way), or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field

from fedse.errors import BadInput
from fedse.plugins import PluginOptions
from fedse.protocols import Chat
from fedse.rollouts.replies import compose
from fedse.rollouts.stepping import MakeWorld
from fedse.seeds import generator
from fedse.stopwatch import during
from fedse.types import Ahead, Outcome, Purpose, Step, Task, Trajectory
from fedse.worlds.answers import BREAKING, finite_number, plain_text, tasks_of
from fedse.worlds.world import World


class Demonstrations:
    """Successful episodes of the world's expert on training tasks, tokenised once."""

    bounded_by = "tasks"
    one_by_one = True

    class Options(PluginOptions):
        tasks: int = Field(default=200, ge=1)
        """Training tasks of each world that the expert shows; fewer where the world has fewer."""

    def __init__(self, tasks: int = 200) -> None:
        self.tasks = tasks
        self._beside: dict[tuple[str, str, int], Callable[[], list[Trajectory | None] | None]] = {}

    def size(self, client: str, label: str, world: World) -> int:
        del client, label
        return min(self.tasks, len(tasks_of(world, "train")))

    def ahead(self, client: str, label: str, make_world: MakeWorld, seed: int) -> list[Ahead]:
        key = client, label, seed
        share = partial(_share, client, label, make_world, seed, self.tasks)
        return [] if key in self._beside else [Ahead(share, partial(self._beside.__setitem__, key), self.tasks)]

    def trajectories(self, client: str, label: str, world: World, chat: Chat, seed: int) -> list[Trajectory]:
        told = self._beside.pop((client, label, seed), lambda: None)()
        shown = _shown(client, label, world, seed, self.tasks) if told is None else told
        found = [item for item in shown if item is not None and item.outcome is Outcome.SUCCESS]
        if not found:
            broke = f" (the world broke in {shown.count(None)} of them)" if None in shown else ""
            raise BadInput(
                f"start: the expert of world '{label}' solved none of {len(shown)} training tasks{broke}, so client "
                f"'{client}' has no demonstrations: use `start: none`, or find out why with `fedse worlds check`."
            )
        return [tokenised(trajectory, chat) for trajectory in found]


def _share(
    client: str, label: str, make_world: MakeWorld, seed: int, tasks: int, number: int, processes: int
) -> list[Trajectory | None]:
    return _shown(client, label, make_world(), seed, tasks, slice(number, None, processes))


def _shown(
    client: str, label: str, world: World, seed: int, tasks: int, share: slice = slice(None)
) -> list[Trajectory | None]:
    """What the expert does on the tasks that are drawn for it, without tokens; None where the world broke."""
    training = tasks_of(world, "train")
    order = generator(seed, client, label, "demonstrations").permutation(len(training))
    shown: list[Trajectory | None] = []
    for index in order[:tasks][share]:
        try:
            shown.append(_played(client, label, world, training[index]))
        except BREAKING:
            # A world that breaks under the expert is an error, not a demonstration; the others stand.
            shown.append(None)
    return shown


def demonstrate(
    client: str,
    label: str,
    world: World,
    task: Task,
    chat: Chat,
    choose: Callable[[World], tuple[str, str]] = lambda world: world.expert(),
) -> Trajectory:
    """The episode of whoever chooses thoughts and actions (the expert), in the same form as the agent's own."""
    return tokenised(_played(client, label, world, task, choose), chat)


def _played(
    client: str,
    label: str,
    world: World,
    task: Task,
    choose: Callable[[World], tuple[str, str]] = lambda world: world.expert(),
) -> Trajectory:
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
    *,
    outcome: Outcome = Outcome.SUCCESS,
    score: float = 1.0,
    attempt: int = 0,
    category: str = "",
) -> Trajectory:
    """An episode that the agent did not play itself, without tokens."""
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
        token_ids=(),
        train_mask=(),
        rules=rules,
        category=category,
    )


def tokenised(trajectory: Trajectory, chat: Chat) -> Trajectory:
    """The episode as if the agent had played it itself."""
    with during("text"):
        ids = [*chat.opening(trajectory.rules)]
        mask = [False] * len(ids)
        for step in trajectory.steps:
            turn, reply = chat.turn(step.observation), chat.reply(step.reply)
            ids += [*turn, *reply]
            mask += [*[False] * len(turn), *[step.learned] * len(reply)]
    return replace(trajectory, token_ids=tuple(ids), train_mask=tuple(mask))
