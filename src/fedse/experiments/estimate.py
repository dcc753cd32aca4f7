"""What a run will cost, measured on a small pilot before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fedse.clients.client import Client
from fedse.clients.site import Place
from fedse.errors import WorldBroke
from fedse.experience.records import to_record
from fedse.experiments.task_counts import draws_on_training
from fedse.probes.evaluation import evaluation_of
from fedse.protocols import KnowsItsSize, Learner, Model, Policy
from fedse.starts.demonstrations import demonstrate
from fedse.types import Adapter, Lesson, Sampling, Trajectory
from fedse.worlds.answers import blamed, plain_text, tasks_of
from fedse.worlds.world import World

PILOT_EPISODES = 4
PILOT_CONVERSATIONS = 16
MOST_COPIES = 24


@dataclass(frozen=True)
class Estimate:
    """Rough by nature: it assumes episodes halfway between the expert's length and the turn limit."""

    seconds: float
    bytes: int
    episodes: int


def estimate(
    clients: Sequence[Client], model: Model, policy: Policy, learner: Learner, adapter: Adapter, rounds: int
) -> Estimate:
    """Time and disk of `rounds` rounds and the closing evaluations, from a few expert episodes and one short decoding.

    Raises `WorldBroke` where a world breaks on the way.
    """
    policy.load(adapter)
    # On a GPU the first time compiles kernels and records graphs, which a run does once.
    times = 1 if getattr(model, "device", "cpu") == "cpu" else 2
    speed = [_decoding_speed(clients, model, policy) for _ in range(times)][-1]
    # The library is stored with every round.
    held = 1 + len(clients) * any(getattr(client.adapters.mix, "needs_library", False) for client in clients)
    seconds, written, episodes = 0.0, adapter.size * 4 * held * (rounds + 1), 0
    # Hundreds of sites may have worlds that are alike, and what one learns from costs what the others' does.
    a_token: dict[tuple[str, str, int], float] = {}
    for client in clients:
        for label, place in client.site.places.items():
            world = place.make()
            with blamed(world, f"a trial at client '{client.name}'"):
                tasks = tasks_of(world, "train")[:PILOT_EPISODES]
                pilot = [demonstrate(client.name, label, world, task, model.chat, _someone) for task in tasks]
                if not pilot:
                    raise WorldBroke("there is no training task.")
            explored, evaluated = _explored(client, world, rounds), _evaluated(client, world, rounds)
            steps = sum(len(item.steps) for item in pilot)
            tokens_a_step = sum(item.agent_tokens for item in pilot) / steps
            longer = (world.turn_limit + steps / len(pilot)) / 2 / (steps / len(pilot))
            played = explored + evaluated
            seconds += played * tokens_a_step * longer * steps / len(pilot) / speed
            written += int(played * longer * _bytes(pilot) / len(pilot))
            episodes += played
            # Half of the exploration kept, on top of the demonstrations, is learned from in every later round.
            remembered = rounds * _begins_with(client, place, world) + explored * (rounds + 1) / 4
            tokens = _tokens(pilot, model) / len(pilot)
            # A token of a long conversation costs more, or less where more of it is a beginning that all share.
            kind = label, world.rules, round(tokens).bit_length()
            if kind not in a_token:
                measured = [_learning_time(learner, adapter, pilot) for _ in range(times)][-1]
                a_token[kind] = measured / _tokens(pilot, model)
            seconds += remembered * tokens * a_token[kind]
    return Estimate(seconds, written, episodes)


def _explored(client: Client, world: World, rounds: int) -> int:
    """Episodes of exploration in a world."""
    exploration = client.site.exploration
    if exploration is None or not client.site.learns:
        return 0
    tasks = exploration.tasks
    if draws_on_training(client.curriculum):
        tasks = min(tasks, len(tasks_of(world, "train")))
    return tasks * exploration.attempts * rounds


def _evaluated(client: Client, world: World, rounds: int) -> int:
    """Episodes of evaluation in a world."""
    options = evaluation_of(client.probes).options
    there = len(tasks_of(world, "validation"))
    tasks = min(options.tasks, there)
    each_round = tasks if options.tasks_per_round is None else min(options.tasks_per_round, there)
    after_learning = rounds * min(options.after_learning, there) if client.site.learns else 0
    test = 0 if options.test_tasks == 0 else len(tasks_of(world, "test")[: options.test_tasks])
    return 2 * tasks + max(0, rounds - 1) * each_round + after_learning + test


def _begins_with(client: Client, place: Place, world: World) -> float:
    """Trajectories of a world in the client's buffer before the first round, as far as they can be told in advance."""
    buffer = client.experience.buffer
    begun = buffer.rounds().get(0)
    buffer.close()
    if begun is not None:
        return begun / len(client.site.places)
    start = client.experience.start
    return start.size(*place.origin, world) if isinstance(start, KnowsItsSize) and client.site.learns else 0


def _someone(world: World) -> tuple[str, str]:
    """The expert where there is one; otherwise anybody will do to see how long episodes are."""
    return world.expert() if world.has_expert else ("Let me try this.", world.trivial(0.5))


def _decoding_speed(clients: Sequence[Client], model: Model, policy: Policy) -> float:
    """Tokens a second with some conversations open at once."""
    world = next(iter(clients[0].site.places.values())).make()
    with blamed(world, f"a trial at client '{clients[0].name}'"):
        observation, _ = world.reset(options={"task": tasks_of(world, "train")[0].id})
        turn, opening = (
            model.chat.turn(plain_text(observation, "the first observation")),
            model.chat.opening(world.rules),
        )
    open_now = min(policy.slots, PILOT_CONVERSATIONS)
    began = time.perf_counter()
    slots = [policy.open(opening, Sampling(number, 1.0)) for number in range(open_now)]
    for slot in slots:
        policy.extend(slot, turn)
    answered, decoded = 0, 0
    while answered < open_now:
        replies = policy.ready()
        answered += len(replies)
        decoded += sum(len(reply.ids) for reply in replies)
    for slot in slots:
        policy.close(slot)
    # At least one: a model may have nothing to say.
    return max(1, decoded) / (time.perf_counter() - began) * policy.slots / open_now / 2


def _learning_time(learner: Learner, adapter: Adapter, pilot: Sequence[Trajectory]) -> float:
    """Seconds of a lesson of these."""
    # Where each step draws a share of what is remembered, as few as these would leave the steps empty, and only their fixed
    # costs would be measured.
    share = getattr(getattr(learner, "options", None), "sampling_rate", 1.0)
    shown = [*pilot] * (min(MOST_COPIES, round(1 / share)) if isinstance(share, float) and 0 < share <= 1 else 1)
    began = time.perf_counter()
    learner.learn(Lesson(adapter, shown, 0, secret=bytes(32)))  # Nothing of it leaves, so that no secret is needed.
    return (time.perf_counter() - began) * len(pilot) / len(shown)


def _tokens(trajectories: Sequence[Trajectory], model: Model) -> int:
    """That are learned from: what lies beyond the context is cut off."""
    return sum(min(len(item.token_ids), model.context) for item in trajectories)


def _bytes(trajectories: Sequence[Trajectory]) -> int:
    return sum(len(json.dumps(to_record(item)).encode()) for item in trajectories)
