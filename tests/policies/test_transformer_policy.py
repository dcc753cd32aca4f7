from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from fedse.errors import BadInput, SwapFailed
from fedse.models.table import Table
from fedse.networks.decoding.slot_cache import SlotCache
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.policies.transformer import TransformerPolicy
from fedse.protocols import Reply
from fedse.types import Adapter, Sampling


def converse(policy: TransformerPolicy, chat: Any, turns: list[str], sampling: Sampling) -> list[tuple[int, ...]]:
    slot = policy.open(chat.opening("rules"), sampling)
    replies = []
    for turn in turns:
        policy.extend(slot, chat.turn(turn))
        [reply] = policy.ready()
        replies.append(reply.ids)
    policy.close(slot)
    return replies


@pytest.fixture
def policy(tiny: Any) -> TransformerPolicy:
    made = TransformerPolicy(tiny, slots=4, reply_tokens=9)
    made.load(tiny.initial_adapter(0))
    return made


def test_greedy_replies_equal_transformers_own_generate(tiny: Any, policy: TransformerPolicy) -> None:
    turns = ["left or right?", "and now?"]
    ours = converse(policy, tiny.chat, turns, Sampling(0, 0.0))
    ids = tiny.chat.opening("rules")
    for turn, reply in zip(turns, ours, strict=True):
        ids = [*ids, *tiny.chat.turn(turn)]
        theirs = tiny.network.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=9,
            do_sample=False,
            eos_token_id=list(tiny.chat.end_ids),
        )[0, len(ids) :].tolist()
        assert list(reply) == theirs
        ids += reply


@pytest.mark.slow
def test_sampling_follows_the_models_distribution(tiny: Any, policy: TransformerPolicy) -> None:
    """Chi-square of 2,000 first tokens against the exact probabilities, over the likeliest tokens."""
    prompt = tiny.chat.opening("rules") + tiny.chat.turn("go")
    with torch.no_grad():
        exact = torch.softmax(tiny.network(torch.tensor([prompt])).logits[0, -1].double() / 0.7, -1)
    counts = torch.zeros_like(exact)
    held = TransformerPolicy(tiny, slots=50, reply_tokens=1)
    held.load(tiny.initial_adapter(0))
    for batch in range(40):
        slots = [held.open(tiny.chat.opening("rules"), Sampling(1000 * batch + n, 0.7)) for n in range(50)]
        for slot in slots:
            held.extend(slot, tiny.chat.turn("go"))
        for reply in held.ready():
            counts[reply.ids[0]] += 1
            held.close(reply.slot)
    top = exact.topk(10).indices
    expected = torch.cat([exact[top], (1 - exact[top].sum())[None]]) * 2000
    seen = torch.cat([counts[top], (2000 - counts[top].sum())[None]])
    assert float(((seen - expected) ** 2 / expected).sum()) < 31.3  # 99.9 % point of chi-square with 11 degrees


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_a_reply_tells_how_likely_each_of_its_tokens_was(
    tiny: Any, policy: TransformerPolicy, temperature: float
) -> None:
    ids = tiny.chat.opening("rules")
    slot = policy.open(ids, Sampling(5, temperature))
    for turn in ("left or right?", "and now?"):
        ids = [*ids, *tiny.chat.turn(turn)]
        policy.extend(slot, tiny.chat.turn(turn))
        [reply] = policy.ready()
        if temperature == 0:
            assert reply.log_probs == ()
            continue
        with torch.no_grad():
            logits = tiny.network(torch.tensor([[*ids, *reply.ids]])).logits[0, len(ids) - 1 : -1]
        exact = torch.log_softmax(logits.double() / temperature, -1).gather(1, torch.tensor(reply.ids)[:, None])
        assert reply.log_probs == pytest.approx(exact.squeeze(1).tolist(), abs=1e-4)
        assert len(reply.ids) > 3 and min(reply.log_probs) < -1
        ids += reply.ids


def test_the_cache_saves_encoding_earlier_turns_again(tiny: Any, policy: TransformerPolicy) -> None:
    opening = len(tiny.chat.opening("rules"))
    converse(policy, tiny.chat, ["one", "two", "three"], Sampling(1, 1.0))
    first = policy.usage.prefilled
    converse(policy, tiny.chat, ["one", "two", "three"], Sampling(1, 1.0))
    # The second conversation finds its opening encoded already.
    assert policy.usage.prefilled == 2 * first - opening
    assert policy.usage.prefilled_without_cache > 2 * policy.usage.prefilled


def test_a_reply_ends_at_its_limit_or_its_end_token(tiny: Any) -> None:
    policy = TransformerPolicy(tiny, slots=8, reply_tokens=60)
    policy.load(tiny.initial_adapter(0))
    for key in range(8):
        policy.extend(policy.open(tiny.chat.opening("rules"), Sampling(key, 1.5)), tiny.chat.turn("speak"))
    replies: list[Reply] = []
    while len(replies) < 8:
        replies += policy.ready()
    assert policy.ready() == []
    for reply in replies:
        assert reply.ended == (reply.ids[-1] in tiny.chat.end_ids)
        assert reply.ended or len(reply.ids) == 60
        assert not set(reply.ids[:-1]) & tiny.chat.end_ids


def test_a_conversation_never_outgrows_the_context() -> None:
    from fedse.models.tiny import Tiny

    small = Tiny(width=32, layers=1, context=128, device="cpu")
    policy = TransformerPolicy(small, slots=2, reply_tokens=100)
    policy.load(small.initial_adapter(0))
    opening, turn = small.chat.opening("r" * 60), small.chat.turn("t" * 30)
    policy.extend(policy.open(opening, Sampling(1, 1.0)), turn)
    [reply] = policy.ready()
    assert len(opening) + len(turn) + len(reply.ids) <= 128


def test_swapping_while_a_conversation_is_open_is_refused(tiny: Any, policy: TransformerPolicy) -> None:
    policy.open(tiny.chat.opening("rules"), Sampling(0, 0.0))
    with pytest.raises(SwapFailed, match="conversations are open"):
        policy.load(tiny.initial_adapter(0))


def test_a_swap_that_changes_nothing_the_model_says_is_noticed(tiny: Any, policy: TransformerPolicy) -> None:
    """The probe compares two paths through the model; a cache that lies makes them differ."""
    decoder = policy._decoder
    assert isinstance(decoder, StepwiseDecoder)

    class Forgetful(SlotCache):
        def aim_at(self, slots: torch.Tensor, positions: torch.Tensor, columns: int) -> None:
            # Every second token is written over the one before it.
            super().aim_at(slots, positions // 2 * 2, columns)

    decoder._cache = Forgetful(tiny.network.config.num_hidden_layers, policy.slots, decoder._cache.longest)
    with pytest.raises(SwapFailed, match="decoding and learning disagree"):
        policy.load(Adapter({n: t + 0.1 for n, t in tiny.initial_adapter(0).tensors.items()}))


def test_adapters_come_and_go_without_taking_more_memory(tiny: Any, policy: TransformerPolicy) -> None:
    def held() -> int:
        return sum(item.nbytes for item in gc.get_objects() if type(item) is torch.Tensor)

    adapters = [tiny.initial_adapter(seed) for seed in range(3)]
    policy.load(adapters[0])
    gc.collect()
    gc.disable()  # Whoever waits for the garbage collector waits long: it counts objects, not bytes.
    try:
        before = held()
        for adapter in adapters * 2:
            policy.load(adapter)
        assert held() <= before
    finally:
        gc.enable()


def test_a_table_is_no_language_model() -> None:
    with pytest.raises(BadInput, match="goes with policy 'table'"):
        TransformerPolicy(Table())  # type: ignore[arg-type]
