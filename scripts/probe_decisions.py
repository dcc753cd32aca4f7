"""How good single decisions are: optimal ones in held-out states, by saving and restoring the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nano_player import play

from fedse.protocols import Chat, Policy
from fedse.rollouts.replies import parse
from fedse.seeds import generator, stream
from fedse.types import Sampling
from fedse.worlds.world import World

State = tuple[Any, tuple[str, ...], int]
"""A saved state, what was said up to it, and how many turns the expert needs from it."""


def states_of(world: World, task: str) -> list[State]:
    """The states that the imperfect player comes to, as far as the expert can still succeed from them."""
    found: list[State] = []

    def look(said: list[str]) -> None:
        saved = world.save()
        needed = turns_to_success(world)
        world.restore(saved)
        if needed is not None:
            found.append((saved, tuple(said), needed))

    play(world, task, generator(stream("probe", "states", task)).random, look)
    return found


def turns_to_success(world: World) -> int | None:
    """How many turns the expert takes from here; None where it does not succeed any more."""
    turns = 0
    while True:
        _, _, terminated, truncated, info = world.step(world.expert()[1])
        turns += 1
        if terminated or truncated:
            return turns if info["success"] else None


def optimal_share(policy: Policy, chat: Chat, world: World, states: Sequence[State]) -> float:
    """Share of the states in which the policy's likeliest reply is an optimal action."""
    opening = chat.opening(world.rules)
    waiting, asked, right = list(range(len(states))), {}, 0
    while waiting or asked:
        while waiting and len(asked) < policy.slots:
            number = waiting.pop()
            slot = policy.open(opening, Sampling(0, 0.0))
            for place, text in enumerate(states[number][1]):
                policy.extend(slot, chat.reply(text) if place % 2 else chat.turn(text))
            asked[slot] = number
        for reply in policy.ready():
            policy.close(reply.slot)
            saved, _, needed = states[asked.pop(reply.slot)]
            world.restore(saved)
            right += is_optimal(world, parse(chat.text(reply.ids)).action, needed)
    return right / len(states)


def is_optimal(world: World, action: str, needed: int) -> bool:
    """Whether the expert, going on after the action, succeeds with no more turns in all than it needed without."""
    _, _, terminated, truncated, info = world.step(action)
    if terminated or truncated:
        return bool(info["success"])
    rest = turns_to_success(world)
    return rest is not None and 1 + rest <= needed
