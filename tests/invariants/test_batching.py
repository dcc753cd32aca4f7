"""Invariants 5, 6, 7 and 8: batches may be composed freely, and the loss touches what it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedse.errors import BadInput
from fedse.learners.imitation import Imitation
from fedse.networks.decoding.probe import probe_gap
from fedse.networks.decoding.stepwise import StepwiseDecoder
from fedse.networks.swap import load_adapter, log_probabilities
from fedse.networks.training.passes import pass_for
from fedse.objectives.cases import examples_of
from fedse.policies.transformer import TransformerPolicy
from fedse.rollouts.player import Player
from fedse.seeds import generator, stream
from fedse.starts.demonstrations import Demonstrations
from fedse.types import Adapter, Episode, Lesson, Purpose, Sampling
from fedse.worlds.maze import Maze
from fedse.worlds.wordle import Wordle


def make_maze() -> Maze:
    return Maze(rules="brief", observation_length="brief", turn_limit=4)


def make_wordle() -> Wordle:
    return Wordle(rules="brief", guesses=3)


def trained(model: Any) -> Adapter:
    """An adapter that is not zero anywhere, so that a mistake with it would show."""
    start = model.initial_adapter(3)
    tensors = {
        name: tensor + 0.05 * generator("trained", name).standard_normal(tensor.shape).astype("float32")
        for name, tensor in start.tensors.items()
    }
    return Adapter(tensors, start.config)


def episodes(client: str, make_world: Any, count: int) -> list[Episode]:
    return [
        Episode(client, client, make_world, task, Purpose.EXPLORE, 1, 0, Sampling(stream(client, task.id), temperature))
        for task in make_world().tasks("train")[:count]
        for temperature in (0.0, 1.0)
    ]


@pytest.mark.slow
def test_all_clients_in_one_batch_play_as_one_after_another_bit_for_bit(tiny: Any) -> None:
    adapter = trained(tiny)
    plans = [episodes("maze", make_maze, 5), episodes("wordle", make_wordle, 4)]

    def play(batches: list[list[Episode]]) -> list[Any]:
        policy = TransformerPolicy(tiny, slots=12, reply_tokens=10)
        policy.load(adapter)
        player = Player(policy, tiny.chat, tiny.context)
        return [trajectory for batch in batches for trajectory in player.play(batch, "adapter")]

    together = play([plans[0] + plans[1]])
    apart = play(plans)
    singly = play([[episode] for plan in plans for episode in plan])
    assert together == apart == singly
    assert len({trajectory.token_ids for trajectory in together}) > len(together) // 2


def test_a_cached_conversation_gives_the_log_probabilities_of_a_plain_pass(tiny: Any) -> None:
    """Every reply token of several turns, teacher-forced: the policy's path and the learner's agree."""
    adapter = trained(tiny)
    policy = TransformerPolicy(tiny, slots=4, reply_tokens=12)
    policy.load(adapter)
    seen: list[tuple[list[int], torch.Tensor]] = []
    decoder = policy._decoder
    assert isinstance(decoder, StepwiseDecoder)
    draw = decoder.draw

    def watching(replies: Any, logits: torch.Tensor) -> list[int]:
        tokens = draw(replies, logits)
        seen.append((tokens, torch.log_softmax(logits.float(), -1)))
        return tokens

    decoder.draw = watching  # type: ignore[method-assign]
    trajectory = Player(policy, tiny.chat, tiny.context).play(episodes("maze", make_maze, 1)[1:], "adapter")[0]
    load_adapter(tiny.network, adapter)
    plain = log_probabilities(tiny.network, list(trajectory.token_ids))
    sampled = [index - 1 for index, train in enumerate(trajectory.train_mask) if train]
    assert len(sampled) == len(seen) > 20
    for position, (tokens, log_probability) in zip(sampled, seen, strict=True):
        assert log_probability[0, tokens[0]] == pytest.approx(plain[position].item(), abs=1e-4)


def test_after_a_swap_policy_and_learner_agree_and_differ_from_the_adapter_before(tiny: Any) -> None:
    policy = TransformerPolicy(tiny, slots=4)
    probe = tiny.chat.opening("probe") + tiny.chat.turn("probe")
    answers = []
    for adapter in (tiny.initial_adapter(0), trained(tiny)):
        policy.load(adapter)
        assert probe_gap(policy.model, policy._decoder) < 1e-4
        answers.append(log_probabilities(tiny.network, probe))
    assert (answers[0] - answers[1]).abs().max() > 1e-2


@pytest.fixture
def demonstrations(tiny: Any) -> Any:
    return Demonstrations(8).trajectories("maze", "maze", make_maze(), tiny.chat, 0)


def test_accumulated_micro_batches_train_like_one_batch(tiny: Any, demonstrations: Any) -> None:
    start = tiny.initial_adapter(0)
    whole, _ = Imitation(tiny, batch_size=8, learning_rate=1e-3).learn(Lesson(start, demonstrations, 5))
    parts, _ = Imitation(tiny, batch_size=8, tokens_at_once=1, learning_rate=1e-3).learn(
        Lesson(start, demonstrations, 5)
    )
    for name, tensor in whole.tensors.items():
        assert parts.tensors[name] == pytest.approx(tensor, abs=2e-5), name
    assert any((whole.tensors[name] != start.tensors[name]).any() for name in start.tensors)


def test_loss_touches_the_agents_tokens_and_its_end_of_turn_token_and_nothing_else(
    tiny: Any, demonstrations: Any
) -> None:
    load_adapter(tiny.network, trained(tiny))
    item = demonstrations[0]
    end = next(iter(tiny.chat.end_ids))
    spoken = [token for token, train in zip(item.token_ids, item.train_mask, strict=True) if train]
    assert spoken == [token for step in item.steps for token in tiny.chat.reply(step.reply)]
    assert spoken.count(end) == len(item.steps)

    through = pass_for(tiny.network, checkpointing=False)
    longer = replace(item, token_ids=item.token_ids * 2, train_mask=(False,) * len(item.token_ids) + item.train_mask)

    def loss(*trajectories: Any) -> float:
        return through.add_gradient(examples_of(trajectories, tiny.context), 0, 1.0)[0].item()

    log_probability = log_probabilities(tiny.network, list(item.token_ids))
    expected = -sum(log_probability[index - 1].item() for index, train in enumerate(item.train_mask) if train)
    assert loss(item) == pytest.approx(expected, rel=1e-5)
    # A longer conversation beside it changes nothing.
    assert loss(item, longer) - loss(longer) == pytest.approx(expected, rel=1e-3)


def test_a_trajectory_whose_replies_are_masked_out_teaches_nothing(tiny: Any, demonstrations: Any) -> None:
    silent = replace(demonstrations[0], train_mask=(False,) * len(demonstrations[0].train_mask))
    start = tiny.initial_adapter(0)
    learner = Imitation(tiny, learning_rate=1e-3)
    alone, _ = learner.learn(Lesson(start, demonstrations[1:], 5))
    beside, _ = learner.learn(Lesson(start, [*demonstrations[1:], silent], 5))
    assert alone.digest() == beside.digest() != start.digest()
    with pytest.raises(BadInput, match="nothing to learn from"):
        learner.learn(Lesson(start, [silent], 5))
