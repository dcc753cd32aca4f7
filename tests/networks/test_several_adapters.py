"""Conversations with different adapters in one batch: each is what its adapter alone would have said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plain_kernels
import pytest

import fedse
from fedse.errors import SwapFailed
from fedse.models.tiny import Tiny
from fedse.networks.decoding.decoder import Decoder
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.rollouts.several import AnswersWithSeveral
from fedse.seeds import generator, stream
from fedse.types import Adapter, Episode, Purpose, Sampling, Trajectory
from fedse.worlds.maze import Maze


class Graphed(TransformerPolicy):
    """The decoder for GPUs, on any device."""

    kernels: Any = plain_kernels

    def make_decoder(self) -> Decoder:
        return GraphedDecoder(self.model, self.slots, self.kernels)


class OneByOne(Graphed):
    adapters_at_once = 1


@pytest.fixture(autouse=True)
def small_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes as large as a GPU likes them take a CPU long."""
    monkeypatch.setattr("fedse.networks.decoding.graphed.PASSES", (2, 4, 8))


def stirred(model: Any, name: str) -> Adapter:
    start = model.initial_adapter(3)
    noise = {key: generator(name, key).standard_normal(held.shape) for key, held in start.tensors.items()}
    return Adapter({key: (held + 0.2 * noise[key]).astype("float32") for key, held in start.tensors.items()})


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=4)


def episodes(tasks: int) -> list[Episode]:
    return [
        Episode("c", "maze", make_maze, task, Purpose.EXPLORE, 1, 0, Sampling(stream(task.id), temperature))
        for task in make_maze().tasks("train")[:tasks]
        for temperature in (0.0, 1.0)
    ]


def player(policy: TransformerPolicy) -> Player:
    return Player(policy, policy.model.chat, policy.model.context)


def together(policy: TransformerPolicy, adapters: list[Adapter], wanted: list[Episode]) -> list[list[Trajectory]]:
    """Every episode with every adapter, those of one episode next to each other."""
    policy.load_all(adapters)
    mixed = [(episode, adapter.digest()) for episode in wanted for adapter in adapters]
    played = player(policy).play_with(mixed)
    return [played[number :: len(adapters)] for number in range(len(adapters))]


def apart(policy: TransformerPolicy, adapters: list[Adapter], wanted: list[Episode]) -> list[list[Trajectory]]:
    found = []
    for adapter in adapters:
        policy.load(adapter)
        found.append(player(policy).play(wanted, adapter.digest()))
    return found


@pytest.mark.slow
def test_each_conversation_is_held_with_its_own_adapter(tiny: Any) -> None:
    adapters = [stirred(tiny, name) for name in ("a", "b", "c")]
    wanted = episodes(1)
    usual = apart(TransformerPolicy(tiny, slots=4, reply_tokens=8), adapters, wanted)
    graphed = Graphed(tiny, slots=5, reply_tokens=8)
    assert together(graphed, adapters, wanted) == usual
    assert len({trajectory.token_ids for own in usual for trajectory in own}) == 6, "adapters must differ"
    # One after several, and several after one, with nothing left of what was held before.
    assert apart(graphed, adapters[1:2], wanted) == usual[1:2]
    assert together(graphed, adapters[::2], wanted) == usual[::2]


def test_a_copy_of_a_conversation_keeps_its_adapter(tiny: Any) -> None:
    first, second = stirred(tiny, "a"), stirred(tiny, "b")
    policy, said = Graphed(tiny, slots=3, reply_tokens=8), {}
    policy.load_all([first, second])
    for adapter in (second, first):
        policy.choose(adapter.digest())
        slot = policy.open(tiny.chat.opening("rules"), Sampling(1, 0.0))
        policy.choose((first if adapter is second else second).digest())
        copy = policy.fork(slot)
        for each in (slot, copy):
            policy.extend(each, tiny.chat.turn("left or right?"))
        replies: dict[int, tuple[int, ...]] = {}
        while len(replies) < 2:
            replies |= {reply.slot: tuple(reply.ids) for reply in policy.ready()}
        assert replies[slot] == replies[copy]
        said[adapter.digest()] = replies[slot]
        policy.close(slot)
        policy.close(copy)
    assert len(set(said.values())) == 2


@pytest.mark.slow
def test_one_that_diverged_harms_no_other(tiny: Any) -> None:
    good, diverged = stirred(tiny, "a"), stirred(tiny, "b")
    for tensor in diverged.tensors.values():
        tensor *= np.float32(3e38)
    policy = Graphed(tiny, slots=3, reply_tokens=8)
    with pytest.raises(SwapFailed, match="disagree"):
        policy.load_all([good, diverged])
    assert together(policy, [good, stirred(tiny, "c")], episodes(1))[0] == apart(policy, [good], episodes(1))[0]


def test_other_decoders_hold_one(tiny: Any) -> None:
    assert TransformerPolicy(tiny, slots=2).adapters_at_once == 1
    graphed = Graphed(tiny, slots=2)
    assert isinstance(graphed, AnswersWithSeveral) and graphed.adapters_at_once > 1


@pytest.mark.slow
def test_sites_that_learn_alone_play_in_one_batch_and_reach_the_same(tiny_file: Path, tmp_path: Path) -> None:
    short = [
        "model.width=16",
        "model.layers=1",
        "exploration.tasks=1",
        "evaluation.tasks=1",
        "evaluation.test_tasks=1",
        "start.tasks=2",
    ]
    found, batches = {}, {}
    for policy in (Graphed, OneByOne):
        alone = [*short, "method=local_se", f"policy.name={policy.__module__}:{policy.__name__}"]
        result = fedse.run(fedse.load_experiment(tiny_file, alone), tmp_path / policy.__name__)
        events = [json.loads(line) for line in (result.folder / "events.jsonl").read_text().splitlines()]
        batches[policy] = [event["episodes"] for event in events if event["event"] == "episodes_played"]
        journals = sorted(result.folder.glob("clients/*/episodes/*.jsonl"))
        found[policy] = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    # Steps with another number of rows may round the last bits of a probability otherwise.
    apart = [[episode.pop("log_probs", []) for episode in found[policy]] for policy in (Graphed, OneByOne)]
    assert found[Graphed] == found[OneByOne] and len(found[Graphed]) > 4 and any(apart[0])
    for one, other in zip(*apart, strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert sum(batches[Graphed]) == sum(batches[OneByOne]) and len(batches[Graphed]) < len(batches[OneByOne])


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "least"), [("float32", 7), ("bfloat16", 4)])
def test_on_a_gpu_each_conversation_is_held_with_its_own_adapter(dtype: str, least: int) -> None:
    """In the last bits products of more ranks differ, which turns a draw now and then."""
    model = Tiny(device="cuda", dtype=dtype)
    adapters = [stirred(model, name) for name in ("a", "b", "c")]
    wanted = episodes(4)
    policy = TransformerPolicy(model, slots=5, reply_tokens=8)
    assert policy.adapters_at_once > 1
    usual, mine = apart(policy, adapters, wanted), together(policy, adapters, wanted)
    for one, other in zip(mine, usual, strict=True):
        assert sum(a == b for a, b in zip(one, other, strict=True)) >= least, "of eight, for each adapter"
    assert together(policy, adapters, wanted) == mine
