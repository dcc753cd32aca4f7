"""Carry the actions of an episode out again, in the same task or in another one."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from fedse.protocols import Chat
from fedse.stopwatch import during
from fedse.types import Outcome, Purpose, Step, Task, Trajectory
from fedse.worlds.answers import blamed, finite_number, plain_text
from fedse.worlds.world import World


def has_prefix(trajectory: Trajectory) -> bool:
    """Whether an exploration began where an earlier episode had been."""
    return trajectory.purpose is Purpose.EXPLORE and bool(trajectory.steps) and not trajectory.steps[0].learned


def replay(world: World, trajectory: Trajectory) -> None:
    """Bring a world to where an episode ended in it."""
    with during("world"), blamed(world, f"a repetition of '{trajectory.task}'"):
        world.reset(options={"task": trajectory.task})
        for step in trajectory.steps:
            world.step(step.action)


def relabelled(trajectory: Trajectory, task: Task, world: World, chat: Chat) -> Trajectory | None:
    """The episode that the same replies make of another task, up to its success; None if they do not succeed in it."""
    replies = replies_of(trajectory)
    if replies is None:
        return None
    with during("world"), blamed(world, f"'{task.id}'"):
        observation, _ = world.reset(options={"task": task.id})
        rules = plain_text(world.rules, "what the rules say")
        ids = [*chat.opening(rules)]
        mask, steps = [False] * len(ids), list[Step]()
        between: list[int] = []
        for step, reply in zip(trajectory.steps, replies, strict=True):
            seen = plain_text(observation, "an observation")
            turn = [*between, *chat.turn(seen)]
            ids += [*turn, *reply]
            mask += [*[False] * len(turn), *[True] * len(reply)]
            observation, reward, terminated, truncated, info = world.step(step.action)
            worth = finite_number(reward, "the reward")
            steps.append(replace(step, observation=seen, valid=bool(info["valid"]), reward=worth, hint=""))
            if terminated or truncated:
                break
            between = [] if reply[-1] in chat.end_ids else chat.reply("")
        if not (terminated or truncated) or not info["success"]:
            return None
        return replace(
            trajectory,
            task=task.id,
            category=task.category,
            purpose=Purpose.RELABEL,
            rules=rules,
            steps=tuple(steps),
            closing=plain_text(observation, "an observation"),
            outcome=Outcome.SUCCESS,
            score=finite_number(info["score"], "the score"),
            token_ids=tuple(ids),
            train_mask=tuple(mask),
            rewards={},
            # They are of other tokens: those of the conversation that was held.
            log_probs=(),
            reshaped=False,
        )


def replies_of(trajectory: Trajectory) -> list[tuple[int, ...]] | None:
    """The token ids of each reply as they were sampled; None where they cannot be told apart, or are not all learned."""
    spans = reply_spans(trajectory)
    return None if spans is None else [trajectory.token_ids[start:end] for start, end in spans]


def reply_spans(trajectory: Trajectory) -> list[tuple[int, int]] | None:
    """Where each reply begins and ends among the token ids; None likewise."""
    found, place = [], 0
    for marked, stretch in groupby(trajectory.train_mask):
        end = place + sum(1 for _ in stretch)
        if marked:
            found.append((place, end))
        place = end
    return found if found and len(found) == len(trajectory.steps) else None
