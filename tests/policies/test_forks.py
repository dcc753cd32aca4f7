"""A conversation that is forked goes on, in both slots, as two that were played separately."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_server import LocalServer, Said

from fedse.models.chat import ByteChat
from fedse.models.served import Served
from fedse.models.table import TENSOR, Table
from fedse.models.tiny import Tiny
from fedse.networks.decoding.decoder import Decoder
from fedse.networks.decoding.graphed import GraphedDecoder
from fedse.policies.api import ApiPolicy
from fedse.policies.scripted import ScriptedPolicy
from fedse.policies.table import TablePolicy
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Forks, Policy, Reply
from fedse.types import Adapter, Sampling

GREEDY, DRAWN = Sampling(7, 0.0), Sampling(7, 1.0)
BEFORE, LEFT, RIGHT = ("where are you?", "what now?"), ("go left", "and then?"), ("go right", "why?")


def told(policy: Policy, slots: Sequence[int], turns: Sequence[str], chat: Any) -> list[tuple[int, ...]]:
    """The replies to one turn in each slot, all due at once."""
    for slot, turn in zip(slots, turns, strict=True):
        policy.extend(slot, chat.turn(turn))
    replies: dict[int, Reply] = {}
    while len(replies) < len(slots):
        replies |= {reply.slot: reply for reply in policy.ready()}
    return [replies[slot].ids for slot in slots]


def separately(policy: Policy, chat: Any, turns: Sequence[str], sampling: Sampling) -> list[tuple[int, ...]]:
    slot = policy.open(chat.opening("rules"), sampling)
    replies = [told(policy, [slot], [turn], chat)[0] for turn in turns]
    policy.close(slot)
    return replies


def assert_forks(policy: Any, chat: Any, sampling: Sampling) -> None:
    assert isinstance(policy, Forks)
    alone = [separately(policy, chat, (*BEFORE, *after), sampling) for after in (LEFT, RIGHT)]
    slot = policy.open(chat.opening("rules"), sampling)
    for turn in BEFORE:
        told(policy, [slot], [turn], chat)
    copy = policy.fork(slot)
    assert copy != slot
    together = [told(policy, [slot, copy], turns, chat) for turns in zip(LEFT, RIGHT, strict=True)]
    assert [list(own) for own in zip(*together, strict=True)] == [replies[len(BEFORE) :] for replies in alone]
    policy.extend(slot, chat.turn("once more"))
    with pytest.raises(ValueError, match="waits for a reply"):
        policy.fork(slot)
    policy.ready()
    policy.close(slot)
    policy.close(copy)


class Graphed(TransformerPolicy):
    """The decoder for GPUs, with plain kernels."""

    def make_decoder(self) -> Decoder:
        import plain_kernels

        return GraphedDecoder(self.model, self.slots, plain_kernels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sampling"), [(TransformerPolicy, GREEDY), (TransformerPolicy, DRAWN), (Graphed, GREEDY)]
)
def test_a_transformers_conversation(
    tiny: Any, kind: type[TransformerPolicy], sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "networks"))
    policy = kind(tiny, slots=3, reply_tokens=9)
    start = tiny.initial_adapter(0)
    random = np.random.default_rng(1)
    tensors = {name: held + 0.2 * random.standard_normal(held.shape) for name, held in start.tensors.items()}
    policy.load(Adapter({name: held.astype(np.float32) for name, held in tensors.items()}, start.config))
    assert_forks(policy, tiny.chat, sampling)
    slot = policy.open(tiny.chat.opening("rules"), sampling)
    told(policy, [slot], ["where are you?"], tiny.chat)
    used = policy.usage.prefilled
    copy = policy.fork(slot)
    assert policy.usage.prefilled == used, "what is in the cache was encoded again"
    first, second = (len(tiny.chat.turn("go on")) + 1 for _ in range(2))
    told(policy, [slot, copy], ["go on", "go on"], tiny.chat)
    assert policy.usage.prefilled == used + first + second


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_conversation_on_a_gpu(sampling: Sampling) -> None:
    model = Tiny(width=64, layers=2, device="cuda")
    policy = TransformerPolicy(model, slots=3, reply_tokens=9)
    policy.load(model.initial_adapter(0))
    assert_forks(policy, model.chat, sampling)


def test_a_copy_may_have_a_sampling_of_its_own(tiny: Any) -> None:
    policy = TransformerPolicy(tiny, slots=3, reply_tokens=9)
    policy.load(tiny.initial_adapter(0))
    slot = policy.open(tiny.chat.opening("rules"), DRAWN)
    same, other = policy.fork(slot), policy.fork(slot, Sampling(8, 1.0))
    replies = told(policy, [slot, same, other], ["go on"] * 3, tiny.chat)
    assert replies[0] == replies[1] != replies[2]


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_scripted_conversation_and_a_tables(sampling: Sampling) -> None:
    chat = ByteChat()
    assert_forks(ScriptedPolicy(chat, lambda turn, draw: f"{turn} {draw:.6f}", slots=3), chat, sampling)
    model = Table(actions=["move up", "move down", "wait"], rows=64)
    policy = TablePolicy(model)
    policy.load(Adapter({TENSOR: np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)}))
    assert_forks(policy, model.chat, sampling)


def test_a_served_conversation_is_asked_for_as_a_whole() -> None:
    pytest.importorskip("openai")

    def answer(number: int, request: Any) -> Any:
        del number
        return Said("|".join(str(message["content"]) for message in request["messages"])[-200:])

    with LocalServer(answer) as server:
        policy = ApiPolicy(Served(), url=server.url, model="m", retries=1, timeout=10.0, slots=3)
        assert_forks(policy, ByteChat(), GREEDY)
